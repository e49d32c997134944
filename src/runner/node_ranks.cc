#include "runner/node_ranks.h"

#include <algorithm>
#include <utility>

#include "comm/staged/staged_communicator.h"
#include "runner/node_plan.h"
#include "tensor/device_runtime.h"

namespace atom {
namespace {

using Communicators = std::vector<std::unique_ptr<Communicator>>;

// Between two steps of an engine that nobody asks anything.
constexpr std::chrono::hours kForEver{24 * 365 * 10};

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

// The nodes from `first` on.
std::vector<int> consecutive(int first, int count) {
  std::vector<int> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back(first + i);
  return nodes;
}

}  // namespace

// Lists the groups of the mesh, the same at all nodes, and takes what this one has of them.
class NodeRanks::Maker {
 public:
  Maker(const ResolvedConfig& config, Device first, std::chrono::milliseconds timeout)
      : plan_(config),
        self_(config.engine.nodes.node_rank),
        share_experts_(config.copies_share_experts),
        first_(first),
        timeout_(timeout),
        groups_(plan_.groups()),
        made_(new NodeRanks()) {
    for (int rank = 0; rank < plan_.num_ranks(); ++rank) {
      all_.push_back(parallel_context(config.engine.parallel, rank, share_experts_));
    }
    int32_t card = first.index;
    for (const int rank : plan_.ranks_of(self_)) {
      if (!first.is_cpu()) all_[static_cast<size_t>(rank)].card = card++;
    }
  }

  Result<std::shared_ptr<NodeRanks>> make(const MeshOptions& mesh) {
    ASSIGN_OR_RETURN(joined_, form_mesh(mesh, list_groups()));
    take_messages();
    for (const NodePlan::RankGroup& group : groups_) RETURN_IF_ERROR(take_ranks(group));
    for (const int rank : plan_.ranks_of(self_)) {
      made_->ranks_.push_back(all_[static_cast<size_t>(rank)]);
    }
    made_->num_copies_ = plan_.num_copies_of_node();
    return std::move(made_);
  }

 private:
  bool has_lockstep() const { return share_experts_; }
  // Steps of the only copy take the group of all nodes.
  bool has_steps() const { return plan_.num_copies() > 1 && plan_.num_nodes_of_copy() > 1; }

  std::vector<MeshGroup> list_groups() const {
    std::vector<MeshGroup> groups = {{consecutive(0, plan_.num_nodes()), kForEver}};
    for (int copy = 0; copy < plan_.num_copies() && has_steps(); ++copy) {
      groups.push_back({consecutive(plan_.leader_of(copy), plan_.num_nodes_of_copy()), kForEver});
    }
    for (int node = 1; node < plan_.num_nodes(); ++node) {
      if (plan_.leads(node)) groups.push_back({{0, node}, kForEver});
    }
    if (has_lockstep()) {
      MeshGroup& lockstep = groups.emplace_back();
      lockstep.timeout = timeout_;
      for (int copy = 0; copy < plan_.num_copies(); ++copy) {
        lockstep.processes.push_back(plan_.leader_of(copy));
      }
    }
    for (const NodePlan::RankGroup& group : groups_) {
      const std::vector<int> nodes = plan_.nodes_of(group.ranks);
      if (!is_on_one(nodes)) groups.push_back({nodes, timeout_});
    }
    return groups;
  }

  // Those of the next group; null for ranks of other nodes.
  Communicators next_joined() { return std::move(joined_[next_joined_++]); }

  Communicator* keep(std::unique_ptr<Communicator> communicator) {
    if (communicator == nullptr) return nullptr;
    made_->communicators_.push_back(std::move(communicator));
    return made_->communicators_.back().get();
  }

  // The one that this node has, at most.
  Communicator* keep_own(Communicators communicators) {
    Communicator* own = nullptr;
    for (std::unique_ptr<Communicator>& communicator : communicators) {
      if (communicator != nullptr) own = keep(std::move(communicator));
    }
    return own;
  }

  void take_messages() {
    Communicator* const nodes = keep_own(next_joined());
    if (plan_.num_copies() == 1) made_->steps_ = nodes;
    for (int copy = 0; copy < plan_.num_copies() && has_steps(); ++copy) {
      if (Communicator* const steps = keep_own(next_joined())) made_->steps_ = steps;
    }
    made_->answers_.resize(static_cast<size_t>(plan_.num_nodes()));
    for (int node = 1; node < plan_.num_nodes(); ++node) {
      if (plan_.leads(node)) made_->answers_[static_cast<size_t>(node)] = keep_own(next_joined());
    }
    if (!has_lockstep()) return;
    for (std::unique_ptr<Communicator>& communicator : next_joined()) {
      if (communicator != nullptr) made_->lockstep_.push_back(keep(std::move(communicator)));
    }
  }

  Status take_ranks(const NodePlan::RankGroup& group) {
    std::vector<ParallelContext*> members;
    for (const int rank : group.ranks) members.push_back(&all_[static_cast<size_t>(rank)]);
    const std::vector<int> nodes = plan_.nodes_of(group.ranks);
    const bool on_one = is_on_one(nodes);
    if (on_one && nodes.front() != self_) return {};
    Communicators communicators;
    if (on_one) {
      ASSIGN_OR_RETURN(communicators, make_group(members, first_.type, timeout_));
    } else {
      communicators = next_joined();
    }
    for (size_t i = 0; i < members.size(); ++i) {
      std::unique_ptr<Communicator> communicator = std::move(communicators[i]);
      if (communicator == nullptr) continue;
      if (!on_one) {
        const Device device = first_.is_cpu() ? first_ : Device{first_.type, members[i]->card};
        ASSIGN_OR_RETURN(communicator, from_device(device, std::move(communicator)));
      }
      members[i]->*group.member = keep(std::move(communicator));
    }
    return {};
  }

  const NodePlan plan_;
  const int self_;
  const bool share_experts_;
  const Device first_;
  const std::chrono::milliseconds timeout_;
  const std::vector<NodePlan::RankGroup> groups_;
  std::vector<ParallelContext> all_;
  MeshRanks joined_;
  size_t next_joined_ = 0;
  std::shared_ptr<NodeRanks> made_;
};

Result<std::shared_ptr<NodeRanks>> NodeRanks::form(const ResolvedConfig& config,
                                                   Device first,
                                                   std::chrono::milliseconds timeout,
                                                   const MeshOptions& mesh) {
  return Maker(config, first, timeout).make(mesh);
}

}  // namespace atom
