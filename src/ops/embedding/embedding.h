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

// Of a table that holds a part of the vocabulary, from id `first_id` on: out[t] = table[ids[t] -
// first_id], and zeros for ids that it does not hold, negative ones among them.
void embedding_of_part(const Stream& stream,
                       const Tensor& ids,
                       const Tensor& table,  // [rows, hidden_size]
                       int64_t first_id,
                       const Tensor& out);

}  // namespace atom::ops
