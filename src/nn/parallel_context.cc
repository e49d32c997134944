#include "nn/parallel_context.h"

namespace atom {

void ParallelContext::all_reduce(const Stream& stream, const Tensor& x, ReduceOp op) const {
  if (tensor_parallel_size > 1 && !stream.is_dry_run()) tensor_parallel->all_reduce(stream, x, op);
}

void ParallelContext::all_gather(const Stream& stream,
                                 const Tensor& part,
                                 const Tensor& whole) const {
  CHECK(tensor_parallel_size > 1);
  if (!stream.is_dry_run()) tensor_parallel->all_gather(stream, part, whole);
}

}  // namespace atom
