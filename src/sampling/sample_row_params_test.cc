#include "sampling/sample_row_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "sampling/logit_edits.h"

namespace atom {
namespace {

constexpr int64_t kVocab = 50;

// What the device does with a row's edits.
void apply(const SampleRowParams& row,
           std::vector<LogitEdit> edits,
           int32_t pending,
           std::vector<float>& logits) {
  if (!edits.empty() && edits.back().token_id < 0) {
    edits.back() = {.token_id = pending, .num_generated = 0};
    for (size_t i = 0; i + 1 < edits.size(); ++i) {
      if (edits[i].token_id != pending) continue;
      edits[i].num_generated = std::max(edits[i].num_generated, 0);
      std::swap(edits[i], edits.back());
      edits.erase(edits.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    ++edits.back().num_generated;
  }
  for (const LogitEdit& edit : edits) {
    float& x = logits[edit.token_id];
    x = edit.bias == -INFINITY ? -INFINITY : x + edit.bias;
    if (edit.num_generated < 0) continue;
    x = x > 0 ? x / row.repetition_penalty : x * row.repetition_penalty;
    if (edit.num_generated == 0) continue;
    x -= row.frequency_penalty * static_cast<float>(edit.num_generated);
    x -= row.presence_penalty;
  }
}

SamplingParams random_params(std::mt19937& random) {
  SamplingParams params;
  params.seed = 1;
  if (random() % 2 == 0) params.repetition_penalty = 1.25f;
  if (random() % 2 == 0) params.frequency_penalty = 0.5f;
  if (random() % 3 == 0) params.presence_penalty = -0.75f;
  if (random() % 2 == 0) params.min_tokens = 5;
  params.stop_token_ids = {static_cast<int32_t>(random() % kVocab), 3};
  for (int32_t id = 0; id < kVocab; ++id) {
    if (random() % 5 == 0) params.logit_bias.emplace_back(id, 1.5f - static_cast<float>(id % 4));
  }
  return params;
}

TEST(SampleRowParams, EditsAreThoseOfTheHost) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const SamplingParams params = random_params(random);
    std::vector<int32_t> prompt(12);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % kVocab);
    SamplingState state(params, prompt, std::vector<int32_t>{7, 8}, kVocab);
    const int num_known = static_cast<int>(random() % 8);
    for (int i = 0; i < num_known; ++i) state.append(static_cast<int32_t>(random() % kVocab));

    DeviceSamplingRow row{&state, state.num_generated(), -1};
    SamplingState complete = state;
    const auto pending = static_cast<int32_t>(random() % kVocab);
    if (round % 2 == 0) {
      complete.append(pending);
      row.position = complete.num_generated();
      row.pending_row = 4;
    }
    std::vector<float> expected(kVocab), got(kVocab);
    for (float& x : expected) x = static_cast<float>(random() % 1000) / 100 - 5;
    got = expected;
    edit_logits(complete, nullptr, expected.data());
    std::vector<LogitEdit> edits(3);  // of other rows
    const SampleRowParams result = sample_row_params(row, &edits);
    ASSERT_EQ(result.first_edit, 3);
    ASSERT_EQ(result.num_edits + 3, static_cast<int>(edits.size()));
    apply(result, {edits.begin() + 3, edits.end()}, pending, got);
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), kVocab * sizeof(float)), 0) << round;
    ASSERT_LE(result.num_edits, max_row_edits(kVocab));
  }
}

TEST(SampleRowParams, EditsOfWordsAndThoughtsAreThoseOfTheHost) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    SamplingParams params = random_params(random);
    const auto token = [&] { return static_cast<int32_t>(random() % 4); };
    params.bad_word_ids = {{token()}, {token(), token()}, {token(), token(), token()}};
    if (round % 3 == 0) params.max_thinking_tokens = static_cast<int32_t>(random() % 6);
    params.starts_thinking = true;
    params.thinking_end_ids = {9};
    params.thinking_closing_ids = {9, token()};
    SamplingState state(params, {}, std::vector<int32_t>{7}, kVocab);
    const int num_known = static_cast<int>(random() % 8);
    for (int i = 0; i < num_known; ++i) state.append(token());
    std::vector<float> expected(kVocab), got(kVocab);
    for (float& x : expected) x = static_cast<float>(random() % 1000) / 100 - 5;
    got = expected;
    edit_logits(state, nullptr, expected.data());
    std::vector<LogitEdit> edits;
    const SampleRowParams result = sample_row_params({&state, state.num_generated(), -1}, &edits);
    apply(result, edits, -1, got);
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), kVocab * sizeof(float)), 0) << round;
  }
}

TEST(SampleRowParams, LargestLogitIsEnoughOnlyWithoutWishes) {
  const auto takes = [](auto&& change) {
    SamplingParams params;
    params.seed = 1;
    params.temperature = 0;
    DeviceSamplingRow row{nullptr, 2, 5};
    change(params, row);
    const SamplingState state(params, {}, std::vector<int32_t>{7}, kVocab);
    row.state = &state;
    return takes_largest_logit(row);
  };
  EXPECT_TRUE(takes([](auto&, auto&) {}));
  EXPECT_FALSE(takes([](auto& p, auto&) { p.temperature = 0.5f; }));
  EXPECT_FALSE(takes([](auto& p, auto&) { p.logprobs = 0; }));
  EXPECT_FALSE(takes([](auto& p, auto&) { p.logit_bias = {{1, 1.0f}}; }));
  EXPECT_FALSE(takes([](auto& p, auto&) { p.min_tokens = 3; }));
  EXPECT_TRUE(takes([](auto& p, auto&) { p.min_tokens = 2; }));
  // Only the token that is still on the device is penalized.
  EXPECT_FALSE(takes([](auto& p, auto&) { p.presence_penalty = 1; }));
  EXPECT_TRUE(takes([](auto& p, auto& row) {
    p.presence_penalty = 1;
    row.pending_row = -1;
  }));
}

}  // namespace
}  // namespace atom
