#include "nn/parallel_context.h"

#include <algorithm>

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

std::vector<int32_t> ParallelContext::exchange_token_counts(const Stream& stream,
                                                            int64_t num_tokens) const {
  if (!copies_share_experts()) return {};
  const auto own = static_cast<int32_t>(num_tokens);
  std::vector<int32_t> counts(expert_size(), own);
  if (stream.is_dry_run()) return counts;
  // The host decides by them what it enqueues, so it is hosts that tell each other.
  const Tensor mine = token_counts.narrow(0, 0, 1);
  const Tensor all = token_counts.narrow(0, 1, expert_size());
  *mine.data<int32_t>() = own;
  experts->all_gather(Stream(&stream.pool()), mine, all.view({expert_size(), 1}));
  // Of a group that has failed no counts come, and no pass may get lost over that.
  if (experts->status().ok()) std::copy_n(all.data<int32_t>(), counts.size(), counts.begin());
  return counts;
}

void ParallelContext::reduce_over_all(const Stream& stream, const Tensor& x, ReduceOp op) const {
  if (tensor_parallel != nullptr) tensor_parallel->all_reduce(stream, x, op);
  if (pipeline_parallel != nullptr) pipeline_parallel->all_reduce(stream, x, op);
  if (context_parallel != nullptr) context_parallel->all_reduce(stream, x, op);
  if (experts != nullptr) experts->all_reduce(stream, x, op);
}

void ParallelContext::meet(ThreadPool* pool) const {
  const Stream host(pool);
  for (Communicator* group : {tensor_parallel, pipeline_parallel, context_parallel, experts}) {
    if (group != nullptr) group->barrier(host);
  }
}

void ParallelContext::meet_to_replay() const {
  if (pipeline_parallel != nullptr) pipeline_parallel->meet_neighbors();
  for (Communicator* group : {tensor_parallel, context_parallel, experts}) {
    if (group != nullptr) group->meet_all();
  }
}

bool ParallelContext::can_be_recorded() const {
  for (const Communicator* group :
       {tensor_parallel, pipeline_parallel, context_parallel, experts}) {
    if (group != nullptr && group->goes_through_host()) return false;
  }
  return true;
}

Status ParallelContext::status() const {
  if (tensor_parallel != nullptr) RETURN_IF_ERROR(tensor_parallel->status());
  if (pipeline_parallel != nullptr) RETURN_IF_ERROR(pipeline_parallel->status());
  if (context_parallel != nullptr) RETURN_IF_ERROR(context_parallel->status());
  return experts == nullptr ? Status() : experts->status();
}

}  // namespace atom
