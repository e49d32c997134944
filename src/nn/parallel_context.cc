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

void ParallelContext::send_to_next(const Stream& stream, const Tensor& x) const {
  if (!stream.is_dry_run()) pipeline_parallel->send(stream, x, pipeline_parallel_rank + 1);
}

void ParallelContext::receive_from_previous(const Stream& stream, const Tensor& x) const {
  if (!stream.is_dry_run()) pipeline_parallel->receive(stream, x, pipeline_parallel_rank - 1);
}

void ParallelContext::reduce_over_all(const Stream& stream, const Tensor& x, ReduceOp op) const {
  if (tensor_parallel != nullptr) tensor_parallel->all_reduce(stream, x, op);
  if (pipeline_parallel != nullptr) pipeline_parallel->all_reduce(stream, x, op);
  if (context_parallel != nullptr) context_parallel->all_reduce(stream, x, op);
}

Status ParallelContext::status() const {
  if (tensor_parallel != nullptr) RETURN_IF_ERROR(tensor_parallel->status());
  if (pipeline_parallel != nullptr) RETURN_IF_ERROR(pipeline_parallel->status());
  return context_parallel == nullptr ? Status() : context_parallel->status();
}

}  // namespace atom
