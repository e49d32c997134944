#include "models/blocks/indexer_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atom {
namespace {

MlaOptions attention() {
  MlaOptions options;
  options.sizes.rope_dim = 64;
  options.q_lora_rank = 96;
  return options;
}

Result<IndexerConfig> read(const std::string& keys, int32_t num_layers) {
  ModelConfig config;
  config.num_hidden_layers = num_layers;
  config.raw = std::make_shared<const Json>(
      Json::parse(R"({"index_n_heads": 4, "index_head_dim": 128, "index_topk": 32)" + keys + "}"));
  return read_indexer_config(config, attention(), /*interleaved=*/false);
}

std::vector<int> layers_with_indexer(const std::string& keys, int32_t num_layers) {
  const Result<IndexerConfig> config = read(keys, num_layers);
  EXPECT_TRUE(config.ok()) << config.status().message();
  std::vector<int> layers;
  for (int layer = 0; layer < num_layers; ++layer) {
    const MlaOptions options = config->with_indexer(attention(), layer);
    EXPECT_NE(options.indexer.has_value(), options.shares_selection);
    if (options.indexer) layers.push_back(layer);
  }
  EXPECT_EQ(config->has_shared(), std::ssize(layers) < num_layers);
  return layers;
}

TEST(IndexerConfig, EveryLayerHasAnIndexerUnlessTheFileSaysOtherwise) {
  EXPECT_EQ(layers_with_indexer("", 3), (std::vector<int>{0, 1, 2}));
}

// The published layers of GLM-5.2.
TEST(IndexerConfig, TheFrequencyBeginsAtAnOffset) {
  std::vector<int> expected = {0, 1, 2};
  for (int layer = 6; layer < 78; layer += 4) expected.push_back(layer);
  EXPECT_EQ(layers_with_indexer(R"(, "index_topk_freq": 4, "index_skip_topk_offset": 3)", 78),
            expected);
  EXPECT_EQ(layers_with_indexer(R"(, "index_topk_freq": 2)", 6), (std::vector<int>{0, 1, 3, 5}));
}

TEST(IndexerConfig, ListedLayersComeFirst) {
  const char* frequency = R"(, "index_topk_freq": 2)";
  EXPECT_EQ(layers_with_indexer(R"(, "index_topk_pattern": "FSSFS")" + std::string(frequency), 4),
            (std::vector<int>{0, 3}));
  EXPECT_EQ(layers_with_indexer(R"(, "index_topk_pattern": ["full", "shared", "full"])", 3),
            (std::vector<int>{0, 2}));
  EXPECT_EQ(layers_with_indexer(
                R"(, "index_topk_pattern": "FSS", "indexer_types": ["full", "full", "shared"])", 3),
            (std::vector<int>{0, 1}));
}

TEST(IndexerConfig, AFirstLayerWithoutIndexerIsRefused) {
  const Result<IndexerConfig> config = read(R"(, "index_topk_pattern": "SF")", 2);
  EXPECT_NE(config.status().message().find("'index_topk_pattern'"), std::string::npos);
}

}  // namespace
}  // namespace atom
