#include "runner/node_plan.h"

#include <algorithm>

namespace atom {

NodePlan::NodePlan(const ResolvedConfig& config)
    : num_nodes_(config.engine.nodes.num_nodes),
      num_copies_(config.engine.parallel.data_parallel_size),
      tensor_size_(config.engine.parallel.tensor_parallel_size),
      num_stages_(config.engine.parallel.pipeline_parallel_size),
      share_experts_(config.copies_share_experts),
      ranks_of_copy_(tensor_size_ * num_stages_),
      ranks_per_node_(num_copies_ * ranks_of_copy_ / num_nodes_) {}

int NodePlan::node_of(int rank) const {
  const int copy = rank / ranks_of_copy_, of_copy = rank % ranks_of_copy_;
  const int stage = num_stages_ - 1 - of_copy / tensor_size_;
  const int place = copy * ranks_of_copy_ + stage * tensor_size_ + of_copy % tensor_size_;
  return place / ranks_per_node_;
}

std::vector<int> NodePlan::nodes_of(const std::vector<int>& ranks) const {
  std::vector<int> nodes;
  for (const int rank : ranks) nodes.push_back(node_of(rank));
  return nodes;
}

std::vector<int> NodePlan::ranks_of(int node) const {
  std::vector<int> ranks;
  for (int place = node * ranks_per_node_; place < (node + 1) * ranks_per_node_; ++place) {
    const int copy = place / ranks_of_copy_, of_copy = place % ranks_of_copy_;
    const int stage = num_stages_ - 1 - of_copy / tensor_size_;
    ranks.push_back(copy * ranks_of_copy_ + stage * tensor_size_ + of_copy % tensor_size_);
  }
  return ranks;
}

int NodePlan::num_copies_of_node() const {
  return std::max(1, ranks_per_node_ / ranks_of_copy_);
}

int NodePlan::num_nodes_of_copy() const {
  return std::max(1, ranks_of_copy_ / ranks_per_node_);
}

std::vector<NodePlan::RankGroup> NodePlan::groups() const {
  std::vector<RankGroup> groups;
  for (int first = 0; first < num_ranks() && tensor_size_ > 1; first += tensor_size_) {
    RankGroup& group = groups.emplace_back();
    group.member = &ParallelContext::tensor_parallel;
    for (int i = 0; i < tensor_size_; ++i) group.ranks.push_back(first + i);
  }
  const int num_pipelines = num_stages_ > 1 ? num_copies_ * tensor_size_ : 0;
  for (int pipeline = 0; pipeline < num_pipelines; ++pipeline) {
    RankGroup& group = groups.emplace_back();
    group.member = &ParallelContext::pipeline_parallel;
    const int first = pipeline / tensor_size_ * ranks_of_copy_ + pipeline % tensor_size_;
    for (int stage = 0; stage < num_stages_; ++stage) {
      group.ranks.push_back(first + stage * tensor_size_);
    }
  }
  for (int stage = 0; stage < num_stages_ && share_experts_; ++stage) {
    RankGroup& group = groups.emplace_back();
    group.member = &ParallelContext::experts;
    for (int i = 0; i < num_copies_ * tensor_size_; ++i) {
      const int copy = i / tensor_size_;
      group.ranks.push_back(copy * ranks_of_copy_ + stage * tensor_size_ + i % tensor_size_);
    }
  }
  return groups;
}

}  // namespace atom
