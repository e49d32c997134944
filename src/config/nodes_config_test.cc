#include "config/nodes_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "config/engine_config.h"

namespace atom {
namespace {

EngineConfig two_nodes() {
  EngineConfig config;
  config.parallel.tensor_parallel_size = 4;
  config.nodes.num_nodes = 2;
  return config;
}

std::string why_not(const EngineConfig& config) {
  return check_nodes(config).message();
}

TEST(NodesConfig, RefusesWhatDoesNotGoTogether) {
  EXPECT_EQ(why_not(EngineConfig()), "");
  EXPECT_EQ(why_not(two_nodes()), "");
  EngineConfig config = two_nodes();
  config.nodes.node_rank = 2;
  EXPECT_NE(why_not(config).find("--node-rank 2"), std::string::npos);
  config = two_nodes();
  config.nodes.num_nodes = 3;
  EXPECT_NE(why_not(config).find("does not divide the 4 ranks"), std::string::npos);
  config = two_nodes();
  config.parallel.prefill_context_parallel_size = 2;
  EXPECT_NE(why_not(config).find("--prefill-context-parallel-size 2"), std::string::npos);
  config = EngineConfig();
  config.nodes.node_rank = 1;
  EXPECT_NE(why_not(config).find("--nnodes"), std::string::npos);
}

// Of a tensor-parallel size of 4.
TEST(NodesConfig, NodesHaveWholeCopiesOrCopiesWholeNodes) {
  const auto with = [](int32_t num_copies, int32_t num_nodes) {
    EngineConfig config = two_nodes();
    config.parallel.data_parallel_size = num_copies;
    config.nodes.num_nodes = num_nodes;
    return why_not(config);
  };
  EXPECT_EQ(with(2, 2), "");
  EXPECT_EQ(with(4, 2), "");
  EXPECT_EQ(with(2, 4), "");
  EXPECT_EQ(with(2, 8), "");
  EXPECT_NE(with(6, 4).find("--nnodes 4 with 6 copies"), std::string::npos);
  EXPECT_NE(with(2, 16).find("does not divide the 8 ranks"), std::string::npos);
  EngineConfig config = two_nodes();
  config.parallel.enable_dp_attention = true;  // four copies
  EXPECT_EQ(why_not(config), "");
}

class NodesDigest : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder =
        std::filesystem::path(testing::TempDir()) / "nodes_config_test";
    std::filesystem::remove_all(folder);
    config_.model.model = folder.string();
    ASSERT_TRUE(replace_file(config_.model.model + "/config.json", "{}").ok());
    ASSERT_TRUE(replace_file(config_.model.model + "/model.safetensors", "12").ok());
  }

  std::string digest() const { return digest_for_nodes(config_, "1").value(); }

  EngineConfig config_ = two_nodes();
};

TEST_F(NodesDigest, IsTheSameForTheSameModelAndFlags) {
  const std::string first = digest();
  EXPECT_EQ(digest(), first);
  config_.nodes.node_rank = 1;
  config_.device.num_threads = 3;
  config_.supervision.step_timeout = 5;
  config_.log_level = "debug";
  EXPECT_EQ(digest(), first);
  EXPECT_LT(first.size(), 200u);
}

TEST_F(NodesDigest, TellsOtherFlagsFilesAndVersionsApart) {
  const std::string first = digest();
  EXPECT_NE(digest_for_nodes(config_, "2").value(), first);
  config_.cache.block_size *= 2;
  EXPECT_NE(digest(), first);
  config_ = two_nodes();
  SetUp();
  ASSERT_TRUE(replace_file(config_.model.model + "/model.safetensors", "123").ok());
  EXPECT_NE(digest(), first);
  SetUp();
  ASSERT_TRUE(replace_file(config_.model.model + "/config.json", "{ }").ok());
  EXPECT_NE(digest(), first);
  config_.model.model += "/none";
  EXPECT_FALSE(digest_for_nodes(config_, "1").ok());
}

}  // namespace
}  // namespace atom
