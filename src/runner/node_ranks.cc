#include "runner/node_ranks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/staged/staged_communicator.h"
#include "tensor/device_runtime.h"

namespace atom {
namespace {

// Between two steps of an engine that nobody asks anything.
constexpr std::chrono::hours kForEver{24 * 365 * 10};

using GroupMember = Communicator* ParallelContext::*;

// Ranks that share layers, or that have the same part of each stage.
struct RankGroup {
  GroupMember member = nullptr;
  std::vector<int> ranks;
};

class NodePlan {
 public:
  explicit NodePlan(const EngineConfig& config)
      : tensor_size_(config.parallel.tensor_parallel_size),
        num_stages_(config.parallel.pipeline_parallel_size),
        ranks_per_node_(tensor_size_ * num_stages_ / config.nodes.num_nodes) {}

  int world() const { return tensor_size_ * num_stages_; }

  // Those of the last stages first.
  std::vector<int> ranks_of(int node) const {
    std::vector<int> ranks;
    for (int place = node * ranks_per_node_; place < (node + 1) * ranks_per_node_; ++place) {
      const int stage = num_stages_ - 1 - place / tensor_size_;
      ranks.push_back(stage * tensor_size_ + place % tensor_size_);
    }
    return ranks;
  }

  int node_of(int rank) const {
    const int stage = num_stages_ - 1 - rank / tensor_size_;
    return (stage * tensor_size_ + rank % tensor_size_) / ranks_per_node_;
  }

  std::vector<RankGroup> groups() const {
    std::vector<RankGroup> groups;
    for (int stage = 0; stage < num_stages_ && tensor_size_ > 1; ++stage) {
      RankGroup& group = groups.emplace_back();
      group.member = &ParallelContext::tensor_parallel;
      for (int i = 0; i < tensor_size_; ++i) group.ranks.push_back(stage * tensor_size_ + i);
    }
    for (int i = 0; i < tensor_size_ && num_stages_ > 1; ++i) {
      RankGroup& group = groups.emplace_back();
      group.member = &ParallelContext::pipeline_parallel;
      for (int stage = 0; stage < num_stages_; ++stage) {
        group.ranks.push_back(stage * tensor_size_ + i);
      }
    }
    return groups;
  }

  std::vector<int> nodes_of(const RankGroup& group) const {
    std::vector<int> nodes;
    for (const int rank : group.ranks) nodes.push_back(node_of(rank));
    return nodes;
  }

 private:
  const int tensor_size_;
  const int num_stages_;
  const int ranks_per_node_;
};

// `joined`, of a rank on that device.
Result<std::unique_ptr<Communicator>> from_device(Device device,
                                                  std::unique_ptr<Communicator> joined) {
  if (device.is_cpu()) return joined;
  ASSIGN_OR_RETURN(DeviceRuntime* const card, device_runtime(device));
  return make_staged_communicator(std::move(joined), *card);
}

bool is_on_one(const std::vector<int>& nodes) {
  return std::ranges::all_of(nodes, [&](int node) { return node == nodes.front(); });
}

}  // namespace

Result<std::unique_ptr<NodeRanks>> NodeRanks::form(const EngineConfig& config,
                                                   Device first,
                                                   std::chrono::milliseconds timeout,
                                                   const MeshOptions& mesh) {
  const NodePlan plan(config);
  const std::vector<RankGroup> groups = plan.groups();
  std::vector<MeshGroup> over_nodes(1);
  for (int node = 0; node < config.nodes.num_nodes; ++node) {
    over_nodes[0].processes.push_back(node);
  }
  over_nodes[0].timeout = kForEver;
  for (const RankGroup& group : groups) {
    const std::vector<int> nodes = plan.nodes_of(group);
    if (!is_on_one(nodes)) over_nodes.push_back({nodes, timeout});
  }
  ASSIGN_OR_RETURN(MeshRanks joined, form_mesh(mesh, over_nodes));

  std::unique_ptr<NodeRanks> here(new NodeRanks());
  const int self = config.nodes.node_rank;
  here->communicators_.push_back(std::move(joined[0][static_cast<size_t>(self)]));
  std::vector<ParallelContext> all;
  for (int rank = 0; rank < plan.world(); ++rank) {
    all.push_back(parallel_context(config.parallel, rank));
  }
  int32_t card = first.index;
  for (const int rank : plan.ranks_of(self)) {
    if (!first.is_cpu()) all[static_cast<size_t>(rank)].card = card++;
  }
  size_t next_joined = 1;
  for (const RankGroup& group : groups) {
    std::vector<ParallelContext*> members;
    for (const int rank : group.ranks) members.push_back(&all[static_cast<size_t>(rank)]);
    const std::vector<int> nodes = plan.nodes_of(group);
    const bool on_one = is_on_one(nodes);
    if (on_one && nodes.front() != self) continue;
    std::vector<std::unique_ptr<Communicator>> communicators;
    if (on_one) {
      ASSIGN_OR_RETURN(communicators, make_group(members, first.type, timeout));
    } else {
      communicators = std::move(joined[next_joined++]);
    }
    for (size_t i = 0; i < members.size(); ++i) {
      std::unique_ptr<Communicator> communicator = std::move(communicators[i]);
      if (communicator == nullptr) continue;
      if (!on_one) {
        const Device device = first.is_cpu() ? first : Device{first.type, members[i]->card};
        ASSIGN_OR_RETURN(communicator, from_device(device, std::move(communicator)));
      }
      members[i]->*group.member = communicator.get();
      here->communicators_.push_back(std::move(communicator));
    }
  }
  for (const int rank : plan.ranks_of(self)) {
    here->ranks_.push_back(all[static_cast<size_t>(rank)]);
  }
  return here;
}

}  // namespace atom
