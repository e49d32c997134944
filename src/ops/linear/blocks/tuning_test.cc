// Which tiles linears in FP8 with scales of groups get on a card of 132 multiprocessors.
#include "ops/linear/blocks/tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace atom::ops {
namespace {

constexpr int kMultiprocessors = 132;
constexpr int kGroupSize = 128;

LinearBlocksShape shape_of(int num_rows, int width, int in_features, bool is_gated = false) {
  return {num_rows, width, (in_features + kGroupSize - 1) / kGroupSize, is_gated};
}

bool is_a_kernel(const LinearBlocksTuning& tuning) {
  const auto tunings = linear_blocks_tunings();
  return std::find(tunings.begin(), tunings.end(), tuning) != tunings.end();
}

TEST(LinearBlocksTuning, TakesEveryShape) {
  for (const int num_rows : {1, 64, 65, 96, 128, 129, 192, 256, 257, 1000, 20000}) {
    for (const int width : {8, 200, 2048, 2112, 9216, 36864}) {
      for (const int in_features : {16, 128, 400, 2048, 16384}) {
        for (const bool is_gated : {false, true}) {
          const LinearBlocksShape shape = shape_of(num_rows, width, in_features, is_gated);
          const LinearBlocksTuning whole = linear_blocks_tuning(shape, kMultiprocessors);
          const LinearBlocksTuning divided = linear_blocks_divided_tuning(shape, kMultiprocessors);
          for (const LinearBlocksTuning& tuning : {whole, divided}) {
            EXPECT_TRUE(is_a_kernel(tuning));
            EXPECT_TRUE(takes_linear_blocks(shape, tuning));
          }
          EXPECT_EQ(whole.parts, 1);
        }
      }
    }
  }
}

TEST(LinearBlocksTuning, DividesKOnlyWhereTilesAreFew) {
  for (const int num_rows : {1, 64, 257, 4096}) {
    EXPECT_EQ(linear_blocks_divided_tuning(shape_of(num_rows, 2048, 4096), kMultiprocessors).parts,
              1);
  }
  EXPECT_GT(linear_blocks_divided_tuning(shape_of(256, 2048, 4096), kMultiprocessors).parts, 1);
  EXPECT_EQ(linear_blocks_divided_tuning(shape_of(256, 12288, 2048), kMultiprocessors).parts, 1);
}

TEST(LinearBlocksTuning, NeedsAGroupForEveryPart) {
  const LinearBlocksShape shape = shape_of(96, 256, 3 * kGroupSize);
  EXPECT_TRUE(takes_linear_blocks(shape, {128, 64, 1, 1, 2, false}));
  EXPECT_FALSE(takes_linear_blocks(shape_of(96, 256, kGroupSize), {128, 64, 1, 1, 2, false}));
}

TEST(LinearBlocksTuning, CountsClustersThatFitAtATime) {
  const LinearBlocksSteps pairs =
      linear_blocks_steps(shape_of(256, 12288, 2048), {128, 192, 2, 1, 1}, kMultiprocessors);
  EXPECT_EQ(pairs.rows, 1);
  EXPECT_EQ(pairs.columns, 64);
  EXPECT_EQ(pairs.at_a_time, 64);
  EXPECT_EQ(pairs.rounds(), 1);
  const LinearBlocksSteps gated =
      linear_blocks_steps(shape_of(300, 14336, 4096, true), {128, 128, 1, 1, 1}, kMultiprocessors);
  EXPECT_EQ(gated.count(), 3 * 224);
  EXPECT_EQ(gated.at_a_time, kMultiprocessors);
  EXPECT_EQ(gated.rounds(), 6);
}

// What measured best on an H200.
TEST(LinearBlocksTuning, HasTheBestTilesOfModelsForFewRows) {
  const auto best = [](int num_rows, int width, int in_features) {
    return linear_blocks_divided_tuning(shape_of(num_rows, width, in_features), kMultiprocessors);
  };
  const LinearBlocksTuning narrow = {128, 64, 1, 1, 1, false},
                           narrow_parts = {128, 64, 1, 1, 2, false},
                           parts = {128, 128, 1, 1, 2, false}, wide_pair = {128, 192, 2, 1, 1};
  EXPECT_EQ(best(128, 5120, 2048), narrow);        // Qwen3-30B's qkv
  EXPECT_EQ(best(128, 2048, 4096), narrow_parts);  // and output
  EXPECT_EQ(best(256, 2048, 4096), narrow_parts);
  EXPECT_EQ(best(256, 12288, 2048), wide_pair);     // Qwen3-Next's qkvz
  EXPECT_EQ(best(256, 9216, 2048), wide_pair);      // and qkv
  EXPECT_EQ(best(128, 4096, 14336), narrow_parts);  // Llama-8B's down
  EXPECT_EQ(best(256, 4096, 14336), parts);
  EXPECT_EQ(best(256, 2112, 7168), narrow_parts);  // DeepSeek-V3's first projections
  EXPECT_EQ(best(128, 7168, 16384), parts);        // and output
}

TEST(LinearBlocksTuning, SharesRowsEvenlyAmongTiles) {
  const LinearBlocksTuning tuning = {128, 64, 1, 1, 1};
  for (const auto& [num_rows, tile_rows] : {std::pair{1, 16},
                                            {96, 96},
                                            {97, 112},
                                            {128, 128},
                                            {129, 80},
                                            {192, 96},
                                            {256, 128},
                                            {300, 128}}) {
    EXPECT_EQ(linear_blocks_tile_rows(shape_of(num_rows, 2048, 4096), tuning), tile_rows);
  }
}

// With so many rows tiles of 256 rows are ahead, unless they leave multiprocessors without one.
TEST(LinearBlocksTuning, HasLargeTilesForManyRows) {
  const LinearBlocksTuning large = {256, 128, 2};
  EXPECT_EQ(linear_blocks_tuning(shape_of(4096, 12288, 2048), kMultiprocessors), large);
  EXPECT_EQ(linear_blocks_tuning(shape_of(16384, 7168, 16384), kMultiprocessors), large);
  EXPECT_EQ(linear_blocks_tuning(shape_of(300, 2048, 4096), kMultiprocessors).tile_columns, 64);
}

}  // namespace
}  // namespace atom::ops
