#include "runner/node_plan.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

using Numbers = std::vector<int>;

NodePlan plan_of(
    int32_t tensor, int32_t stages, int32_t copies, int32_t nodes, bool share_experts = false) {
  ResolvedConfig config;
  config.engine.parallel.tensor_parallel_size = tensor;
  config.engine.parallel.pipeline_parallel_size = stages;
  config.engine.parallel.data_parallel_size = copies;
  config.engine.nodes.num_nodes = nodes;
  config.copies_share_experts = share_experts;
  return NodePlan(config);
}

TEST(NodePlan, OfOneCopyTheLastStageIsAtTheHead) {
  const NodePlan plan = plan_of(2, 2, 1, 2);
  EXPECT_EQ(plan.ranks_of(0), (Numbers{2, 3}));
  EXPECT_EQ(plan.ranks_of(1), (Numbers{0, 1}));
  EXPECT_EQ(plan.node_of(2), 0);
  EXPECT_EQ(plan.node_of(1), 1);
  EXPECT_TRUE(plan.leads(0));
  EXPECT_FALSE(plan.leads(1));
  EXPECT_EQ(plan.num_nodes_of_copy(), 2);
  EXPECT_EQ(plan.groups().size(), 4u);
}

TEST(NodePlan, NodesHaveWholeCopies) {
  const NodePlan plan = plan_of(2, 1, 4, 2, true);
  EXPECT_EQ(plan.ranks_of(1), (Numbers{4, 5, 6, 7}));
  EXPECT_EQ(plan.num_copies_of_node(), 2);
  EXPECT_EQ(plan.first_copy_of(1), 2);
  EXPECT_EQ(plan.leader_of(3), 1);
  EXPECT_TRUE(plan.leads(1));
  const std::vector<NodePlan::RankGroup> groups = plan.groups();
  ASSERT_EQ(groups.size(), 5u);  // four that share layers, and the experts
  EXPECT_EQ(groups[1].ranks, (Numbers{2, 3}));
  EXPECT_EQ(groups[4].ranks, (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(groups[4].member == &ParallelContext::experts);
  EXPECT_EQ(plan.nodes_of({0, 3, 4}), (Numbers{0, 0, 1}));
}

TEST(NodePlan, CopiesHaveWholeNodes) {
  const NodePlan plan = plan_of(2, 2, 2, 4, true);
  EXPECT_EQ(plan.ranks_of(0), (Numbers{2, 3}));
  EXPECT_EQ(plan.ranks_of(1), (Numbers{0, 1}));
  EXPECT_EQ(plan.ranks_of(2), (Numbers{6, 7}));
  EXPECT_EQ(plan.first_copy_of(3), 1);
  EXPECT_EQ(plan.leader_of(1), 2);
  EXPECT_TRUE(plan.leads(2));
  EXPECT_FALSE(plan.leads(3));
  const std::vector<NodePlan::RankGroup> groups = plan.groups();
  ASSERT_EQ(groups.size(), 10u);  // layers of two stages of two copies, four pipelines, experts
  EXPECT_EQ(groups[6].ranks, (Numbers{4, 6}));
  EXPECT_EQ(groups[8].ranks, (Numbers{0, 1, 4, 5}));
  EXPECT_EQ(groups[9].ranks, (Numbers{2, 3, 6, 7}));
}

}  // namespace
}  // namespace atom
