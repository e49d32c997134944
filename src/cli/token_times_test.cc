#include "cli/token_times.h"

#include <gtest/gtest.h>

namespace atom::cli {
namespace {

TEST(TokenTimes, StepsOfRequestsThatBeganTogether) {
  EXPECT_DOUBLE_EQ(shared_token_time({{1, 2, 3, 4}, {1, 2, 3, 4}}), 1);
  EXPECT_DOUBLE_EQ(shared_token_time({{1, 3, 7}}), 3);
}

TEST(TokenTimes, StepsWithPromptsOfOthersDoNotCount) {
  // Steps of 10 s compute prompts until the last request begins at 30; then they take 1.
  const TokenTimes first = {10, 20, 30, 31, 32}, second = {20, 30, 31, 32, 33},
                   last = {30, 31, 32, 33, 34};
  EXPECT_DOUBLE_EQ(shared_token_time({first, second, last}), 1);
}

TEST(TokenTimes, StepsWithoutThoseThatHaveEndedDoNotCount) {
  const TokenTimes first = {1, 4, 7}, last = {4, 7, 7.5, 8};
  EXPECT_DOUBLE_EQ(shared_token_time({first, last}), 3);
}

TEST(TokenTimes, SeveralTokensOfAStepShareItsTime) {
  // Two tokens of the first request in each step of 3 s, one of the others.
  const TokenTimes two = {0, 0, 3, 3, 6, 6}, one = {0, 3, 6};
  EXPECT_DOUBLE_EQ(shared_token_time({two, two, two}), 1.5);
  EXPECT_DOUBLE_EQ(shared_token_time({two, one, one}), 3);
}

TEST(TokenTimes, NoneWhereOneEndsBeforeAnotherBegins) {
  EXPECT_EQ(shared_token_time({{1, 2}, {3, 4}}), 0);
  EXPECT_EQ(shared_token_time({{1, 2}, {2, 3}}), 0);
  EXPECT_EQ(shared_token_time({{1}, {1}}), 0);
  EXPECT_EQ(shared_token_time({{1, 2}, {}}), 0);
  EXPECT_EQ(shared_token_time({}), 0);
}

TEST(TokenTimes, Median) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace atom::cli
