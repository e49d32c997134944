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

// The same in two steps, of ranks that have a part of the columns each and exchange the keys, by
// which parts of rows are compared.
constexpr int64_t kArgmaxKeys = 32;

void argmax_keys(const Stream& stream,
                 const Tensor& logits,  // [num_rows, columns of this rank] float32, likewise
                 int64_t num_ids,       // 0 to so many columns
                 int64_t first_id,      // of the first column
                 const Tensor& keys);   // [num_rows, kArgmaxKeys] int64

void argmax_of_keys(const Stream& stream,
                    const Tensor& keys,  // [num_ranks, num_rows, kArgmaxKeys] int64
                    const Tensor& out);  // [num_rows] int32

}  // namespace atom::ops
