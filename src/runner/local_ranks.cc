#include "runner/local_ranks.h"

#include <array>
#include <map>

#include "base/env.h"
#include "base/log.h"
#include "comm/device/device_group.h"
#include "comm/local/local_group.h"

namespace atom {

ParallelContext parallel_context(const ParallelConfig& parallel, int rank, bool share_experts) {
  const int32_t tensor_size = parallel.tensor_parallel_size;
  const int32_t num_stages = parallel.pipeline_parallel_size;
  ParallelContext context;
  context.tensor_parallel_rank = rank % tensor_size;
  context.tensor_parallel_size = tensor_size;
  context.context_parallel_rank = rank / tensor_size % parallel.prefill_context_parallel_size;
  context.context_parallel_size = parallel.prefill_context_parallel_size;
  context.pipeline_parallel_rank = rank / parallel.ranks_of_stage() % num_stages;
  context.pipeline_parallel_size = num_stages;
  if (share_experts) {
    context.data_parallel_rank = rank / parallel.ranks_of_copy();
    context.data_parallel_size = parallel.data_parallel_size;
    context.dispatch = parallel.expert_dispatch;
    context.token_counts = Tensor::empty({1 + context.expert_size()}, DType::kInt32);
  }
  context.expert_parallel = parallel.enable_expert_parallel && context.expert_size() > 1;
  context.moves_experts = context.expert_parallel && parallel.eplb.enabled;
  if (context.moves_experts) context.num_redundant_experts = parallel.eplb.num_redundant_experts;
  return context;
}

namespace {

using Group = Communicator* ParallelContext::*;
using Communicators = std::vector<std::unique_ptr<Communicator>>;

// Ranks that agree in the places other than theirs in the group.
std::array<int32_t, 4> key_of(const ParallelContext& rank, Group group) {
  const bool shares_experts = group == &ParallelContext::experts;
  const bool over_tensor = shares_experts || group == &ParallelContext::tensor_parallel;
  return {over_tensor ? -1 : rank.tensor_parallel_rank,
          group == &ParallelContext::context_parallel ? -1 : rank.context_parallel_rank,
          group == &ParallelContext::pipeline_parallel ? -1 : rank.pipeline_parallel_rank,
          shares_experts ? -1 : rank.data_parallel_rank};
}

SumFormat sum_format(Env::ReduceQuantization quantization) {
  switch (quantization) {
    case Env::ReduceQuantization::kFloat8:
      return SumFormat::kFloat8;
    case Env::ReduceQuantization::kInt4:
      return SumFormat::kInt4;
    case Env::ReduceQuantization::kNone:
      break;
  }
  return SumFormat::kWhole;
}

}  // namespace

Result<std::unique_ptr<LocalRanks>> LocalRanks::create(const ParallelConfig& parallel,
                                                       Device first,
                                                       std::chrono::milliseconds timeout,
                                                       bool share_experts) {
  std::unique_ptr<LocalRanks> ranks(new LocalRanks());
  ranks->num_copies_ = share_experts ? parallel.data_parallel_size : 1;
  const int num_ranks = parallel.ranks_of_copy() * ranks->num_copies_;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks->ranks_.push_back(parallel_context(parallel, rank, share_experts));
    if (!first.is_cpu()) ranks->ranks_.back().card = first.index + rank;
  }
  const bool has_sums = !first.is_cpu() && parallel.tensor_parallel_size > 1;
  if (!has_sums && env().reduce_quantization != Env::ReduceQuantization::kNone) {
    log::info("AITER_QUICK_REDUCE_QUANTIZATION has no effect: no layer is shared between GPUs");
  }
  if (parallel.prefill_context_parallel_size == 1 && env().dsa_context_parallel_threshold > 0) {
    log::info(
        "VLLM_DSA_USE_CONTEXT_PARALLEL_THRESHOLD has no effect: prompts are shared out by "
        "--prefill-context-parallel-size alone");
  }
  for (const Group group : {&ParallelContext::tensor_parallel,
                            &ParallelContext::context_parallel,
                            &ParallelContext::pipeline_parallel}) {
    RETURN_IF_ERROR(ranks->make_groups(group, first, timeout));
  }
  if (share_experts) {
    RETURN_IF_ERROR(ranks->make_groups(&ParallelContext::experts, first, timeout));
  }
  return ranks;
}

Result<Communicators> LocalRanks::make_group(const std::vector<ParallelContext*>& members,
                                             DeviceType type,
                                             std::chrono::milliseconds timeout) {
  if (type == DeviceType::kCpu) return make_local_group(static_cast<int>(members.size()), timeout);
  std::vector<Device> devices;
  for (const ParallelContext* member : members) devices.push_back({type, member->card});
  LargeSums large_sums;
  large_sums.format = sum_format(env().reduce_quantization);
  return make_device_group(devices, timeout, large_sums);
}

Status LocalRanks::make_groups(Group group, Device first, std::chrono::milliseconds timeout) {
  std::map<std::array<int32_t, 4>, std::vector<ParallelContext*>> groups;
  for (ParallelContext& rank : ranks_) groups[key_of(rank, group)].push_back(&rank);
  for (const auto& [key, members] : groups) {
    if (members.size() == 1) continue;
    ASSIGN_OR_RETURN(Communicators communicators, make_group(members, first.type, timeout));
    for (size_t i = 0; i < members.size(); ++i) {
      members[i]->*group = communicators[i].get();
      communicators_.push_back(std::move(communicators[i]));
    }
  }
  return {};
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
