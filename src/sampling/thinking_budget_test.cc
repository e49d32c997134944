#include "sampling/thinking_budget.h"

#include <gtest/gtest.h>

#include <utility>

namespace atom {
namespace {

constexpr int32_t kBegin = 90;
constexpr int32_t kEnd = 91;
constexpr int32_t kAny = ThinkingBudget::kAnyToken;

SamplingParams limited(int32_t budget, bool starts_thinking = false) {
  SamplingParams params;
  params.max_thinking_tokens = budget;
  params.starts_thinking = starts_thinking;
  params.thinking_begin_ids = {kBegin};
  params.thinking_end_ids = {kEnd};
  params.thinking_closing_ids = {kEnd};
  return params;
}

// What an answer becomes that would go on with 1, 2, 3, ...
std::vector<int32_t> answer_of(const SamplingParams& params,
                               const std::vector<int32_t>& wanted,
                               size_t size) {
  ThinkingBudget budget(params);
  std::vector<int32_t> answer;
  for (size_t i = 0; answer.size() < size; ++i) {
    const int32_t next = i < wanted.size() ? wanted[i] : static_cast<int32_t>(i);
    answer.push_back(budget.forced_token() == kAny ? next : budget.forced_token());
    budget.append(answer.back());
  }
  return answer;
}

using Answer = std::vector<int32_t>;

TEST(ThinkingBudget, EndsTheReasoningThatThePromptBegan) {
  EXPECT_EQ(answer_of(limited(3, true), {}, 6), (Answer{0, 1, 2, kEnd, 4, 5}));
  EXPECT_EQ(answer_of(limited(0, true), {}, 3), (Answer{kEnd, 1, 2}));
}

TEST(ThinkingBudget, CountsFromTheMarkThatTheModelWrites) {
  EXPECT_EQ(answer_of(limited(2), {5, kBegin, 6, 7, 8, 9}, 7),
            (Answer{5, kBegin, 6, 7, kEnd, 9, 6}));
  EXPECT_EQ(answer_of(limited(2), {}, 5), (Answer{0, 1, 2, 3, 4}));
}

TEST(ThinkingBudget, ReasoningThatEndsItselfIsLeftAlone) {
  EXPECT_EQ(answer_of(limited(3, true), {5, kEnd}, 7), (Answer{5, kEnd, 2, 3, 4, 5, 6}));
}

TEST(ThinkingBudget, ReasoningTakenUpAgainCountsOn) {
  // One thought, its end, and a second one.
  EXPECT_EQ(answer_of(limited(3, true), {5, kEnd, kBegin, 6, 7}, 7),
            (Answer{5, kEnd, kBegin, 6, kEnd, 5, 6}));
}

TEST(ThinkingBudget, MarksOfSeveralTokens) {
  SamplingParams params = limited(3, true);
  params.thinking_end_ids = {50, 51};
  params.thinking_closing_ids = {50, 51, 60, 61};
  EXPECT_EQ(answer_of(params, {}, 9), (Answer{0, 1, 2, 50, 51, 60, 61, 7, 8}));
  // The closing has begun when the budget is used up, and what is there is not repeated.
  EXPECT_EQ(answer_of(params, {1, 2, 50}, 8), (Answer{1, 2, 50, 51, 60, 61, 6, 7}));
  EXPECT_EQ(answer_of(params, {1, 50, 51}, 6), (Answer{1, 50, 51, 3, 4, 5}));
}

TEST(ThinkingBudget, NoBudgetForcesNothing) {
  SamplingParams params = limited(1, true);
  params.max_thinking_tokens.reset();
  EXPECT_EQ(answer_of(params, {}, 4), (Answer{0, 1, 2, 3}));
}

}  // namespace
}  // namespace atom
