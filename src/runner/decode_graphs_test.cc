#include "runner/decode_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atom {
namespace {

TEST(DecodeGraphs, SizesGrowAndEndWithTheLargestBatch) {
  EXPECT_EQ(DecodeGraphs::batch_sizes(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(DecodeGraphs::batch_sizes(5), (std::vector<int64_t>{1, 2, 4, 5}));
  EXPECT_EQ(DecodeGraphs::batch_sizes(40), (std::vector<int64_t>{1, 2, 4, 8, 16, 24, 32, 40}));
  for (const int64_t max_batch : {16, 17, 256, 300, 1024}) {
    const std::vector<int64_t> sizes = DecodeGraphs::batch_sizes(max_batch);
    EXPECT_EQ(sizes.back(), max_batch);
    for (size_t i = 1; i < sizes.size(); ++i) {
      EXPECT_GT(sizes[i], sizes[i - 1]);
      // What is computed for nothing.
      EXPECT_LE(sizes[i] - sizes[i - 1], std::max<int64_t>(16, sizes[i - 1]));
    }
  }
}

TEST(DecodeGraphs, NothingIsFoundBeforeAnythingIsRecorded) {
  EXPECT_EQ(DecodeGraphs().find(1), nullptr);
}

}  // namespace
}  // namespace atom
