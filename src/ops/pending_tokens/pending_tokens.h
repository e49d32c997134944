// Puts tokens where a step's input only says which row of the step before chose them: for each
//   token_ids[i] < 0:  token_ids[i] = max(0, chosen[~token_ids[i]])
// A row without a choice (chosen < 0) counts as token 0: what follows it is dropped.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

void fill_pending_tokens(const Stream& stream,
                         const Tensor& chosen,      // [num_rows] int32
                         const Tensor& token_ids);  // [num_tokens] int32, changed in place

}  // namespace atom::ops
