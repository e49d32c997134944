#include "sampling/logit_edits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace atom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams seeded() {
  SamplingParams params;
  params.seed = 1;
  return params;
}

TEST(LogitEdits, PenaltiesMatchAPlainComputation) {
  constexpr int kVocab = 50;
  SamplingParams params = seeded();
  params.presence_penalty = 0.7f;
  params.frequency_penalty = -0.3f;
  params.repetition_penalty = 1.4f;
  std::mt19937 engine(3);
  const auto token = [&] { return static_cast<int32_t>(engine() % kVocab); };
  std::vector<int32_t> prompt;
  for (int i = 0; i < 20; ++i) prompt.push_back(token());
  std::vector<int32_t> generated;
  SamplingState state(params, prompt, {}, kVocab);
  for (int step = 0; step < 30; ++step) {
    std::vector<float> logits;
    for (int i = 0; i < kVocab; ++i) logits.push_back(static_cast<float>(engine() % 100) - 50);
    logits[7] = -kInfinity;
    std::vector<float> expected = logits;
    for (int i = 0; i < kVocab; ++i) {
      const auto count = std::count(generated.begin(), generated.end(), i);
      if (count > 0 || std::count(prompt.begin(), prompt.end(), i) > 0) {
        expected[i] = expected[i] > 0 ? expected[i] / 1.4f : expected[i] * 1.4f;
      }
      expected[i] -= -0.3f * static_cast<float>(count);
      expected[i] -= count > 0 ? 0.7f : 0.0f;
    }
    edit_logits(state, nullptr, logits.data());
    EXPECT_EQ(logits, expected) << step;
    generated.push_back(token());
    state.append(generated.back());
  }
}

TEST(LogitEdits, MinTokensGivesWayWhereOnlyAnEndMayCome) {
  SamplingParams params = seeded();
  params.min_tokens = 5;
  const std::vector<int32_t> eos = {3, 40};
  const SamplingState state(params, {}, eos, 41);
  const uint32_t only_ends[] = {1u << 3, 1u << (40 - 32)};
  const uint32_t more[] = {1u << 3 | 1u << 7, 0};
  std::vector<float> logits(41);
  edit_logits(state, only_ends, logits.data());
  EXPECT_EQ(logits[3], 0.0f);
  EXPECT_EQ(logits[40], 0.0f);
  EXPECT_EQ(logits[7], -kInfinity);
  logits.assign(41, 0.0f);
  edit_logits(state, more, logits.data());
  EXPECT_EQ(logits[3], -kInfinity);
  EXPECT_EQ(logits[7], 0.0f);
}

TEST(LogitEdits, PromptCountsForRepetitionOnly) {
  SamplingParams params = seeded();
  params.presence_penalty = 1.0f;
  const std::vector<int32_t> prompt = {1, 2};
  SamplingState state(params, prompt, {}, 4);
  EXPECT_FALSE(has_logit_edits(state, nullptr));
  state.append(2);
  std::vector<float> logits = {0, 0, 0, 0};
  EXPECT_TRUE(has_logit_edits(state, nullptr));
  edit_logits(state, nullptr, logits.data());
  EXPECT_EQ(logits, (std::vector<float>{0, 0, -1, 0}));
}

TEST(LogitEdits, NoPenaltiesKeepNoCounts) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  SamplingState state(seeded(), prompt, {}, 4);
  state.append(1);
  EXPECT_TRUE(state.seen_tokens().empty());
  EXPECT_EQ(state.num_generated(), 1u);
}

TEST(LogitEdits, MinTokensForbidsEndTokensUntilThen) {
  SamplingParams params = seeded();
  params.min_tokens = 2;
  params.stop_token_ids = {3, 99};
  const std::vector<int32_t> eos = {1};
  SamplingState state(params, {}, eos, 5);
  std::vector<float> logits(5, 0.0f);
  state.append(0);
  edit_logits(state, nullptr, logits.data());
  EXPECT_EQ(logits, (std::vector<float>{0, -kInfinity, 0, -kInfinity, 0}));
  state.append(0);
  EXPECT_FALSE(has_logit_edits(state, nullptr));

  params.ignore_eos = true;
  SamplingState ignoring(params, {}, eos, 5);
  logits.assign(5, 0.0f);
  edit_logits(ignoring, nullptr, logits.data());
  EXPECT_EQ(logits, (std::vector<float>{0, 0, 0, -kInfinity, 0}));
}

TEST(LogitEdits, BadWordsAreMaskedWhereTheyWouldBeWhole) {
  SamplingParams params = seeded();
  params.bad_word_ids = {{1}, {2, 3}};
  params.logit_bias = {{3, 50.0f}};
  SamplingState state(params, {}, {}, 5);
  std::vector<float> logits(5, 0.0f);
  edit_logits(state, nullptr, logits.data());
  EXPECT_EQ(logits, (std::vector<float>{0, -kInfinity, 0, 50, 0}));
  state.append(2);
  logits.assign(5, 0.0f);
  edit_logits(state, nullptr, logits.data());
  EXPECT_EQ(logits, (std::vector<float>{0, -kInfinity, 0, -kInfinity, 0}));
}

TEST(LogitEdits, AForcedTokenIsTheLargestWhateverElseIsSaidOfIt) {
  SamplingParams params = seeded();
  params.max_thinking_tokens = 0;
  params.starts_thinking = true;
  params.thinking_closing_ids = {2};
  params.bad_word_ids = {{2}};
  params.logit_bias = {{2, -100.0f}, {3, 100.0f}};
  params.repetition_penalty = 100;
  const std::vector<int32_t> prompt = {2};
  SamplingState state(params, prompt, {}, 4);
  std::vector<float> logits = {1, 2, -30, 3};
  EXPECT_TRUE(has_logit_edits(state, nullptr));
  edit_logits(state, nullptr, logits.data());
  EXPECT_EQ(logits, (std::vector<float>{1, 2, kForcedLogit, 3}));
}

TEST(LogitEdits, BiasIsAddedAndDoesNotUnmask) {
  SamplingParams params = seeded();
  params.logit_bias = {{0, 2.5f}, {2, -100.0f}, {3, 100.0f}, {700, 1.0f}, {-1, 1.0f}};
  params.min_tokens = 1;
  const std::vector<int32_t> eos = {3};
  const SamplingState state(params, {}, eos, 4);
  std::vector<float> logits = {1, 1, 1, 1};
  edit_logits(state, nullptr, logits.data());
  EXPECT_EQ(logits, (std::vector<float>{3.5f, 1, -99, -kInfinity}));
}

TEST(LogitEdits, AllowedTokensMask) {
  constexpr int64_t kVocab = 101;
  const SamplingState state(seeded(), {}, {}, kVocab);
  const uint32_t words[] = {~0u, 0u, 0x80000001u, 0xffffffffu};
  std::vector<float> logits(kVocab, 1.0f);
  edit_logits(state, words, logits.data());
  for (int64_t id = 0; id < kVocab; ++id) {
    const bool allowed = id < 32 || id == 64 || id >= 95;
    EXPECT_EQ(logits[id], allowed ? 1.0f : -kInfinity) << id;
  }
}

TEST(LogitEdits, TokensOutsideTheVocabularyAreIgnored) {
  SamplingParams params = seeded();
  params.repetition_penalty = 2.0f;
  const std::vector<int32_t> prompt = {-1, 4, 1000000, 2};
  SamplingState state(params, prompt, {}, 4);
  state.append(77);
  std::vector<float> logits = {1, 1, 1, 1};
  edit_logits(state, nullptr, logits.data());
  EXPECT_EQ(logits, (std::vector<float>{1, 1, 0.5f, 1}));
}

}  // namespace
}  // namespace atom
