// The greedy choice: out[t] = the lowest id that has the row's largest logit. A row that admits no
// choice gets -1 when it holds NaN or +inf, -2 when it holds -inf only.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// Columns from num_ids on are padding and never chosen.
void argmax(const Stream& stream,
            const Tensor& logits,  // [num_rows, vocab_size] float32, row stride allowed
            int64_t num_ids,       // at most vocab_size
            const Tensor& out,     // [num_rows] int32
            Workspace& scratch);

}  // namespace atom::ops
