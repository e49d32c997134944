#include "sampling/rejection_sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace atom {
namespace {

constexpr int64_t kVocab = 5;

SamplingParams drawing(uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  params.max_tokens = 100;
  return params;
}

// A model of few tokens: the logits behind a history.
std::vector<float> logits_behind(std::span<const int32_t> history) {
  std::mt19937 random(17);
  for (const int32_t token : history) random.seed(random() ^ (static_cast<uint32_t>(token) + 1));
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = std::normal_distribution<float>(0, 1.5f)(random);
  return logits;
}

// Tokens in steps that verify what `draft` proposes for the places behind a history.
template <typename Draft>
std::vector<SampledToken> generate(const SamplingParams& params, size_t count, const Draft& draft) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  RejectionSampler sampler;
  const std::vector<int32_t> prompt = {1, 3};
  const std::vector<int32_t> ends = {4};
  SamplingState state(params, prompt, ends, kVocab);
  std::vector<int32_t> history = prompt;
  std::vector<SampledToken> result;
  while (result.size() < count) {
    const std::vector<int32_t> drafts = draft(history);
    const Tensor logits = Tensor::empty({std::ssize(drafts) + 1, kVocab}, DType::kFloat32);
    std::vector<int32_t> supposed = history;
    for (size_t row = 0; row <= drafts.size(); ++row) {
      std::ranges::copy(logits_behind(supposed), logits.data<float>() + row * kVocab);
      if (row < drafts.size()) supposed.push_back(drafts[row]);
    }
    std::vector<SampledToken> step;
    const DraftedSequence sequence{.state = &state, .drafts = drafts};
    sampler.sample(stream, logits, std::span(&sequence, 1), std::span(&step, 1));
    EXPECT_GE(step.size(), 1u);
    for (size_t i = 0; i < step.size(); ++i) {
      EXPECT_TRUE(step[i].status.ok());
      EXPECT_TRUE(i + 1 == step.size() || step[i].token_id == drafts[i]);
      history.push_back(step[i].token_id);
      result.push_back(std::move(step[i]));
    }
  }
  result.resize(count);
  return result;
}

std::vector<int32_t> ids_of_tokens(const std::vector<SampledToken>& tokens) {
  std::vector<int32_t> ids;
  for (const SampledToken& token : tokens) ids.push_back(token.token_id);
  return ids;
}

std::vector<int32_t> no_drafts(std::span<const int32_t>) {
  return {};
}

std::vector<SamplingParams> many_params() {
  std::vector<SamplingParams> all;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SamplingParams params = drawing(seed);
    if (seed % 4 == 0) params.temperature = 0;
    if (seed % 3 == 0) params.top_k = 3;
    if (seed % 5 == 1) params.top_p = 0.8f;
    if (seed % 5 == 2) params.min_p = 0.1f;
    if (seed % 2 == 1) params.frequency_penalty = 0.7f;
    if (seed % 3 == 1) params.repetition_penalty = 1.4f;
    if (seed % 4 == 3) params.min_tokens = 6;
    params.logprobs = 2;
    all.push_back(params);
  }
  return all;
}

// Whatever is drafted, right or wrong: the tokens and their log-probabilities are the same.
TEST(RejectionSampler, DraftsDoNotChangeWhatIsSampled) {
  for (const SamplingParams& params : many_params()) {
    const auto expected = generate(params, 60, no_drafts);
    std::mt19937 random(3);
    size_t num_steps = 0;
    const auto drafted = generate(params, 60, [&](std::span<const int32_t> history) {
      std::vector<int32_t> drafts;
      const size_t done = history.size() - 2;
      for (size_t i = 0; i < random() % 5 && done + i < expected.size(); ++i) {
        const bool right = random() % 4 != 0;
        drafts.push_back(right ? expected[done + i].token_id
                               : static_cast<int32_t>(random() % kVocab));
      }
      ++num_steps;
      return drafts;
    });
    EXPECT_LT(num_steps, 55u);
    ASSERT_EQ(ids_of_tokens(drafted), ids_of_tokens(expected)) << "seed " << *params.seed;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(drafted[i].logprobs[0].logprob, expected[i].logprobs[0].logprob);
    }
  }
}

// Chi-square of the second token, which is an accepted draft or replaces a rejected one, over draws
// with different seeds; 4 degrees of freedom, at a level of 1e-4.
TEST(RejectionSampler, FrequenciesAreTheTargets) {
  constexpr int kDraws = 20'000;
  constexpr double kCritical = 23.5;
  std::vector<double> expected(kVocab);
  const auto softmax = [](const std::vector<float>& logits) {
    std::vector<double> p;
    double sum = 0;
    for (const float logit : logits) sum += p.emplace_back(std::exp(double{logit}));
    for (double& value : p) value /= sum;
    return p;
  };
  const std::vector<double> first = softmax(logits_behind(std::vector<int32_t>{1, 3}));
  for (int32_t a = 0; a < kVocab; ++a) {
    const std::vector<double> second = softmax(logits_behind(std::vector<int32_t>{1, 3, a}));
    for (int64_t b = 0; b < kVocab; ++b) expected[b] += first[a] * second[b];
  }
  for (const int32_t guess : {0, 3}) {
    std::vector<int> counts(kVocab);
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto tokens =
          generate(drawing(1000 + static_cast<uint64_t>(draw)), 2, [&](std::span<const int32_t>) {
            return std::vector<int32_t>{guess, (guess + draw) % 5};
          });
      ++counts[tokens[1].token_id];
    }
    double chi_square = 0;
    for (int64_t token = 0; token < kVocab; ++token) {
      const double wanted = kDraws * expected[token];
      chi_square += (counts[token] - wanted) * (counts[token] - wanted) / wanted;
    }
    EXPECT_LT(chi_square, kCritical) << "drafting " << guess;
  }
}

// The place behind an accepted draft has a mask of its own.
TEST(RejectionSampler, MasksBelongToPlaces) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  RejectionSampler sampler;
  SamplingParams params = drawing(1);
  params.temperature = 0;
  SamplingState state(params, {}, {}, kVocab);
  const Tensor logits = Tensor::zeros({3, kVocab}, DType::kFloat32);
  const uint32_t masks[] = {1u << 2, 1u << 0, 1u << 4};
  const std::vector<TokenBitmask> allowed = {&masks[0], &masks[1], &masks[2]};
  const std::vector<int32_t> drafts = {2, 0};
  const DraftedSequence sequence{&state, drafts, allowed};
  std::vector<SampledToken> out;
  sampler.sample(stream, logits, std::span(&sequence, 1), std::span(&out, 1));
  EXPECT_EQ(ids_of_tokens(out), (std::vector<int32_t>{2, 0, 4}));
}

TEST(RejectionSampler, AnErrorEndsASequence) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  RejectionSampler sampler;
  SamplingParams params = drawing(1);
  params.temperature = 0;
  SamplingState state(params, {}, {}, kVocab);
  const Tensor logits = Tensor::zeros({3, kVocab}, DType::kFloat32);
  logits.data<float>()[kVocab] = std::nanf("");
  const std::vector<int32_t> drafts = {0, 0};
  const DraftedSequence sequence{&state, drafts};
  std::vector<SampledToken> out;
  sampler.sample(stream, logits, std::span(&sequence, 1), std::span(&out, 1));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_TRUE(out[0].status.ok());
  EXPECT_FALSE(out[1].status.ok());
}

TEST(RejectionSampler, AcceptanceCanBeForced) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  RejectionSampler sampler(1.5);
  SamplingParams params = drawing(5);
  SamplingState state(params, {}, {}, kVocab);
  const std::vector<int32_t> drafts = {1, 2, 3};
  size_t num_tokens = 0;
  for (int step = 0; step < 2000; ++step) {
    const Tensor logits = Tensor::zeros({4, kVocab}, DType::kFloat32);
    const DraftedSequence sequence{&state, drafts};
    std::vector<SampledToken> out;
    sampler.sample(stream, logits, std::span(&sequence, 1), std::span(&out, 1));
    EXPECT_EQ(out[0].token_id, 1);
    num_tokens += out.size();
  }
  EXPECT_NEAR(static_cast<double>(num_tokens) / 2000, 2.5, 0.05);
}

}  // namespace
}  // namespace atom
