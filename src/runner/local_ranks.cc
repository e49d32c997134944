#include "runner/local_ranks.h"

#include "comm/local/local_group.h"

namespace atom {

ParallelContext parallel_context(const ParallelConfig& parallel, int rank) {
  const int32_t tensor_size = parallel.tensor_parallel_size;
  ParallelContext context;
  context.tensor_parallel_rank = rank % tensor_size;
  context.tensor_parallel_size = tensor_size;
  context.context_parallel_rank = rank / tensor_size % parallel.prefill_context_parallel_size;
  context.context_parallel_size = parallel.prefill_context_parallel_size;
  context.pipeline_parallel_rank = rank / parallel.ranks_of_stage();
  context.pipeline_parallel_size = parallel.pipeline_parallel_size;
  context.expert_parallel = parallel.enable_expert_parallel && tensor_size > 1;
  return context;
}

LocalRanks::LocalRanks(const ParallelConfig& parallel, std::chrono::milliseconds timeout) {
  const int world = parallel.ranks_of_copy();
  for (int rank = 0; rank < world; ++rank) {
    ranks_.push_back(parallel_context(parallel, rank));
  }
  // `size` ranks from `first` on, `stride` apart, are a group.
  const auto make_group =
      [&](int first, int size, int stride, Communicator* ParallelContext::*member) {
        if (size == 1) return;
        std::vector<int> members;
        for (int i = 0; i < size; ++i) members.push_back(first + i * stride);
        auto group = make_local_group(static_cast<int>(members.size()), timeout);
        for (size_t i = 0; i < members.size(); ++i) {
          ranks_[members[i]].*member = group[i].get();
          communicators_.push_back(std::move(group[i]));
        }
      };
  const int tensor_size = parallel.tensor_parallel_size;
  const int context_size = parallel.prefill_context_parallel_size;
  const int of_stage = parallel.ranks_of_stage();
  for (int rank = 0; rank < world; ++rank) {
    const ParallelContext& context = ranks_[rank];
    if (context.tensor_parallel_rank == 0) {
      make_group(rank, tensor_size, 1, &ParallelContext::tensor_parallel);
    }
    if (context.context_parallel_rank == 0) {
      make_group(rank, context_size, tensor_size, &ParallelContext::context_parallel);
    }
    if (context.pipeline_parallel_rank == 0) {
      make_group(
          rank, parallel.pipeline_parallel_size, of_stage, &ParallelContext::pipeline_parallel);
    }
  }
}

Status LocalRanks::status() {
  for (const auto& communicator : communicators_) {
    const Status status = communicator->status();
    if (status.ok()) continue;
    fail(status);
    return status;
  }
  return {};
}

void LocalRanks::fail(const Status& reason) {
  for (const auto& communicator : communicators_) communicator->fail(reason);
}

}  // namespace atom
