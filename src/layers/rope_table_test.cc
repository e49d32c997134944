#include "layers/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace atom {
namespace {

void expect_relative(float actual, double expected) {
  EXPECT_NEAR(actual / expected, 1.0, 2e-6) << expected;
}

TEST(RopeTable, Llama3) {
  RopeConfig rope;
  rope.type = RopeType::kLlama3;
  rope.rotary_dim = 128;
  rope.theta = 500000;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_position_embeddings = 8192;
  const std::vector<float> f = rope_frequencies(rope, 131072).inv_freq;
  expect_relative(f[0], 1);
  expect_relative(f[1], 0.814617234);
  expect_relative(f[28], 0.00321144599);
  expect_relative(f[29], 0.00216657076);
  expect_relative(f[32], 5.24846161e-4);
  expect_relative(f[34], 1.78507813e-4);
  expect_relative(f[35], 9.55621235e-5);
  expect_relative(f[63], 3.06892599e-7);
}

TEST(RopeTable, YarnOfGptOssKeepsFractionalCorrections) {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.rotary_dim = 64;
  rope.theta = 150000;
  rope.factor = 32;
  rope.original_max_position_embeddings = 4096;
  rope.truncate = false;
  RopeFrequencies result = rope_frequencies(rope, 131072);
  EXPECT_NEAR(result.attention_factor, 1.3465735902799727, 1e-6);
  expect_relative(result.inv_freq[8], 0.0508132748);
  expect_relative(result.inv_freq[9], 0.0317056962);
  expect_relative(result.inv_freq[17], 1.29318701e-4);
  expect_relative(result.inv_freq[31], 3.02351143e-7);
  rope.truncate = true;
  result = rope_frequencies(rope, 131072);
  expect_relative(result.inv_freq[9], 0.0316207523);
  expect_relative(result.inv_freq[17], 2.27947796e-4);
}

TEST(RopeTable, YarnOfDeepSeekHasNoAttentionFactor) {
  RopeConfig rope;
  rope.type = RopeType::kYarn;
  rope.rotary_dim = 64;
  rope.factor = 40;
  rope.original_max_position_embeddings = 4096;
  rope.mscale = 1;
  rope.mscale_all_dim = 1;
  const RopeFrequencies result = rope_frequencies(rope, 163840);
  EXPECT_EQ(result.attention_factor, 1.0f);
  expect_relative(result.inv_freq[9], 0.0749894209);
  expect_relative(result.inv_freq[16], 0.0055);
  expect_relative(result.inv_freq[31], 3.33380358e-6);
}

TEST(RopeTable, DynamicGrowsTheBaseOnlyBeyondTheOriginalContext) {
  RopeConfig rope;
  rope.type = RopeType::kDynamic;
  rope.rotary_dim = 128;
  rope.factor = 2;
  rope.max_position_embeddings = 2048;
  expect_relative(rope_frequencies(rope, 2048).inv_freq[32], 1 / std::pow(10000.0, 0.5));
  expect_relative(rope_frequencies(rope, 4096).inv_freq[32], 1 / std::pow(30527.7367488067, 0.5));
}

TEST(RopeTable, LinearDividesAndLongRopeChoosesItsFactors) {
  RopeConfig rope;
  rope.type = RopeType::kLinear;
  rope.rotary_dim = 4;
  rope.factor = 4;
  expect_relative(rope_frequencies(rope, 16).inv_freq[1], 0.01 / 4);

  rope.type = RopeType::kLongRope;
  rope.factor = 32;
  rope.original_max_position_embeddings = 4096;
  rope.short_factor = {1, 2};
  rope.long_factor = {3, 5};
  const RopeFrequencies within = rope_frequencies(rope, 4096);
  const RopeFrequencies beyond = rope_frequencies(rope, 4097);
  expect_relative(within.inv_freq[1], 0.01 / 2);
  expect_relative(beyond.inv_freq[1], 0.01 / 5);
  EXPECT_NEAR(within.attention_factor, 1.1902380714238083, 1e-6);
  EXPECT_EQ(within.attention_factor, beyond.attention_factor);
}

TEST(RopeTable, RowsHoldCosinesThenSines) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  const Tensor table = Tensor::empty({200, 4}, DType::kFloat32);
  fill_rope_table(stream, {{1.0f, 0.01f}, 2.0f}, table);
  const float* row = table.data<float>() + 150 * 4;
  EXPECT_FLOAT_EQ(row[0], 2 * std::cos(150.0f));
  EXPECT_FLOAT_EQ(row[1], 2 * std::cos(1.5f));
  EXPECT_FLOAT_EQ(row[2], 2 * std::sin(150.0f));
  EXPECT_FLOAT_EQ(row[3], 2 * std::sin(1.5f));
}

}  // namespace
}  // namespace atom
