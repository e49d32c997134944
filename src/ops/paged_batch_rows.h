// The checks of a PagedBatch and the search for a row in it, for operators that take one row at a
// time.
#pragma once

#include "ops/attention/paged_batch.h"
#include "ops/paged_batch_args.h"
#include "tensor/stream.h"
#include "tensor/tensor_check.h"

namespace atom::ops {

// What kernels take, after a check of the tensors; on the CPU, when `stream` is no dry run, also of
// what they hold: every block that a sequence of this step needs is in its table.
PagedBatchArgs checked_paged_batch(TensorCheck& check,
                                   const Stream& stream,
                                   const PagedBatch& batch,
                                   int64_t num_tokens,
                                   int64_t num_blocks,
                                   int64_t block_size);

// On the CPU. Rows of no sequence, and of sequences of length 0, are padding: their position is -1.
PagedRow find_row(const PagedBatchArgs& args, int64_t token);

}  // namespace atom::ops
