#include "tests/support/golden_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/test_folders.h"

namespace atom {
namespace {

TEST(GoldenCase, LoadsEveryCaseWithConsistentShapes) {
  const std::vector<std::string> folders = golden_case_folders();
  ASSERT_FALSE(folders.empty());
  for (const std::string& folder : folders) {
    const Result<GoldenCase> golden = load_golden_case(folder);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    EXPECT_FALSE(golden->architecture.empty());
    ASSERT_FALSE(golden->prompts.empty());
    for (const GoldenPrompt& prompt : golden->prompts) {
      EXPECT_EQ(prompt.logits.num_rows, static_cast<int64_t>(prompt.positions.size()));
      EXPECT_EQ(prompt.positions.back(), static_cast<int32_t>(prompt.ids.size()) - 1);
      EXPECT_EQ(prompt.greedy.size(), prompt.greedy_margins.size());
      EXPECT_GE(prompt.bf16_bound(), 0.03);
      // The last row predicts the first greedy token.
      const auto row = prompt.logits.row(prompt.logits.num_rows - 1);
      EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), prompt.greedy[0]);
    }
    ASSERT_GE(golden->prompts[0].hidden.size(), 2u);
    EXPECT_EQ(golden->prompts[0].hidden[0].num_rows,
              static_cast<int64_t>(golden->prompts[0].ids.size()));
  }
}

TEST(GoldenCase, NamesTheFileThatIsAbsent) {
  const TemporaryFolder folder;
  const Result<GoldenCase> golden = load_golden_case(folder.path());
  ASSERT_FALSE(golden.ok());
  EXPECT_NE(golden.status().message().find("golden.json"), std::string::npos);
}

TEST(RelativeError, IsTheRatioOfNorms) {
  const std::vector<float> golden = {3, 4};
  EXPECT_EQ(relative_error(golden, golden), 0);
  EXPECT_DOUBLE_EQ(relative_error(std::vector<float>{3, 4.5}, golden), 0.1);
}

TEST(RelativeError, IsInfiniteWhenThereIsNothingToCompare) {
  const std::vector<float> golden = {3, 4};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isinf(relative_error(std::vector<float>{3}, golden)));
  EXPECT_TRUE(std::isinf(relative_error(std::vector<float>{3, nan}, golden)));
  EXPECT_TRUE(std::isinf(relative_error({}, {})));
}

TEST(GreedyMismatch, ForgivesOnlyUndecidedSteps) {
  GoldenPrompt prompt;
  prompt.greedy = {5, 6, 7};
  prompt.greedy_margins = {0.5f, 1e-4f, 0.5f};
  EXPECT_EQ(greedy_mismatch(prompt, std::vector<int32_t>{5, 6, 7}), "");
  EXPECT_EQ(greedy_mismatch(prompt, std::vector<int32_t>{5, 9, 1}), "");
  EXPECT_NE(greedy_mismatch(prompt, std::vector<int32_t>{5, 6, 1}), "");
  EXPECT_NE(greedy_mismatch(prompt, std::vector<int32_t>{4, 6, 7}), "");
  EXPECT_NE(greedy_mismatch(prompt, std::vector<int32_t>{5, 6}), "");
}

}  // namespace
}  // namespace atom
