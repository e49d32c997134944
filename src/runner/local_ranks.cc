#include "runner/local_ranks.h"

#include "comm/local/local_group.h"

namespace atom {

ParallelContext parallel_context(const ParallelConfig& parallel, int rank) {
  const int32_t tensor_size = parallel.tensor_parallel_size;
  ParallelContext context;
  context.tensor_parallel_rank = rank % tensor_size;
  context.tensor_parallel_size = tensor_size;
  context.pipeline_parallel_rank = rank / tensor_size;
  context.pipeline_parallel_size = parallel.pipeline_parallel_size;
  context.expert_parallel = parallel.enable_expert_parallel && tensor_size > 1;
  return context;
}

LocalRanks::LocalRanks(const ParallelConfig& parallel, std::chrono::milliseconds timeout) {
  const int tensor_size = parallel.tensor_parallel_size;
  const int num_stages = parallel.pipeline_parallel_size;
  for (int rank = 0; rank < tensor_size * num_stages; ++rank) {
    ranks_.push_back(parallel_context(parallel, rank));
  }
  // `members`: ranks of one group, in order.
  const auto make_group = [&](const std::vector<int>& members,
                              Communicator* ParallelContext::*member) {
    if (members.size() == 1) return;
    auto group = make_local_group(static_cast<int>(members.size()), timeout);
    for (size_t i = 0; i < members.size(); ++i) {
      ranks_[members[i]].*member = group[i].get();
      communicators_.push_back(std::move(group[i]));
    }
  };
  for (int stage = 0; stage < num_stages; ++stage) {
    std::vector<int> members;
    for (int i = 0; i < tensor_size; ++i) members.push_back(stage * tensor_size + i);
    make_group(members, &ParallelContext::tensor_parallel);
  }
  for (int i = 0; i < tensor_size; ++i) {
    std::vector<int> members;
    for (int stage = 0; stage < num_stages; ++stage) members.push_back(stage * tensor_size + i);
    make_group(members, &ParallelContext::pipeline_parallel);
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
