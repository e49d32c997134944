// Which ranks of an engine are on which of its nodes. Ranks are numbered as in LocalRanks, those of
// one copy of the model behind the other's. Nodes take them in that order, as many each: several
// whole copies to a node, or several whole nodes to a copy. Of a copy the last stage comes first,
// so that the first of its nodes, which schedules its steps, has the rank that answers.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "config/resolve.h"
#include "nn/parallel_context.h"

namespace atom {

class NodePlan {
 public:
  // Ranks that share layers, or experts, or that have the same part of each stage.
  struct RankGroup {
    Communicator* ParallelContext::*member = nullptr;
    std::vector<int> ranks;
  };

  // Of a configuration that check_nodes() admits.
  explicit NodePlan(const ResolvedConfig& config);

  int num_nodes() const { return num_nodes_; }
  int num_copies() const { return num_copies_; }
  int num_ranks() const { return num_copies_ * ranks_of_copy_; }

  int node_of(int rank) const;
  std::vector<int> nodes_of(const std::vector<int>& ranks) const;
  // In the order in which they are there.
  std::vector<int> ranks_of(int node) const;

  // Copies of which a node has ranks, from the first on.
  int first_copy_of(int node) const { return node * ranks_per_node_ / ranks_of_copy_; }
  int num_copies_of_node() const;
  // Nodes that have ranks of a copy, from the first on, its leader.
  int leader_of(int copy) const { return copy * ranks_of_copy_ / ranks_per_node_; }
  int num_nodes_of_copy() const;
  bool leads(int node) const { return leader_of(first_copy_of(node)) == node; }

  // Those of several ranks.
  std::vector<RankGroup> groups() const;

 private:
  const int num_nodes_;
  const int num_copies_;
  const int tensor_size_;
  const int num_stages_;
  const bool share_experts_;
  const int ranks_of_copy_;
  const int ranks_per_node_;
};

}  // namespace atom
