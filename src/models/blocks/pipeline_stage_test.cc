#include "models/blocks/pipeline_stage.h"

#include <gtest/gtest.h>

#include <vector>

namespace atom {
namespace {

std::vector<int32_t> sizes(int32_t num_layers, int32_t num_stages) {
  std::vector<int32_t> result;
  int32_t next = 0;
  for (int32_t i = 0; i < num_stages; ++i) {
    const PipelineStage stage = pipeline_stage(num_layers, i, num_stages);
    EXPECT_EQ(stage.first_layer, next);
    EXPECT_EQ(stage.is_first, i == 0);
    EXPECT_EQ(stage.is_last, i == num_stages - 1);
    next = stage.end_layer;
    result.push_back(stage.end_layer - stage.first_layer);
  }
  EXPECT_EQ(next, num_layers);
  return result;
}

TEST(PipelineStage, WhatDoesNotDivideGoesToTheStagesBeforeTheLast) {
  using Sizes = std::vector<int32_t>;
  EXPECT_EQ(sizes(61, 4), (Sizes{15, 15, 16, 15}));
  EXPECT_EQ(sizes(61, 8), (Sizes{7, 7, 8, 8, 8, 8, 8, 7}));
  EXPECT_EQ(sizes(10, 4), (Sizes{2, 3, 3, 2}));
  EXPECT_EQ(sizes(48, 5), (Sizes{9, 10, 10, 10, 9}));
  EXPECT_EQ(sizes(32, 4), (Sizes{8, 8, 8, 8}));
  EXPECT_EQ(sizes(3, 1), (Sizes{3}));
}

TEST(PipelineStage, TensorsOfOtherStagesAreIgnored) {
  ModelConfig config;
  config.num_hidden_layers = 4;
  const auto ignored = [&](int32_t stage, const char* name) {
    return !ignore_reason(mapping_of_stage({}, pipeline_stage(4, stage, 3), config), name).empty();
  };
  EXPECT_FALSE(ignored(0, "model.embed_tokens.weight"));
  EXPECT_FALSE(ignored(0, "model.layers.0.mlp.x"));
  EXPECT_TRUE(ignored(0, "model.layers.1.mlp.x"));
  EXPECT_TRUE(ignored(0, "lm_head.weight"));
  EXPECT_TRUE(ignored(1, "model.embed_tokens.weight"));
  EXPECT_FALSE(ignored(1, "model.layers.2.mlp.x"));
  EXPECT_TRUE(ignored(1, "model.norm.weight"));
  EXPECT_TRUE(ignored(2, "model.embed_tokens.weight"));
  EXPECT_FALSE(ignored(2, "model.norm.weight"));
  config.tie_word_embeddings = true;
  EXPECT_FALSE(ignored(2, "model.embed_tokens.weight"));
}

}  // namespace
}  // namespace atom
