// Looks up token embeddings: out[t] = table[ids[t]].
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// Ids are below vocab_size: whoever accepts a request checks that, here it is a CHECK.
void embedding(const Stream& stream,
               const Tensor& ids,    // [num_tokens] int32
               const Tensor& table,  // [vocab_size, hidden_size] any dtype
               const Tensor& out);   // [num_tokens, hidden_size] the same dtype

}  // namespace atom::ops
