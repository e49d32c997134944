#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "sampling/logprobs.h"
#include "sampling/sampler_test_rows.h"

namespace atom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<SamplingParams> assorted_params(size_t count) {
  std::vector<SamplingParams> all;
  for (size_t i = 0; i < count; ++i) {
    SamplingParams params = seeded(1000 + i / 2);
    params.temperature = i % 5 == 0 ? 0.0f : 0.5f + 0.1f * static_cast<float>(i % 7);
    if (i % 3 == 1) params.top_k = 40;
    if (i % 4 == 2) params.top_p = 0.9f;
    if (i % 6 == 3) params.min_p = 0.01f;
    if (i % 2 == 1) params.repetition_penalty = 1.2f;
    if (i % 5 == 2) params.frequency_penalty = 0.5f;
    if (i % 4 == 1) params.logprobs = static_cast<int32_t>(i % 6);
    if (i % 7 == 4) params.logit_bias = {{3, 4.0f}};
    all.push_back(params);
  }
  return all;
}

bool same(const SampledToken& a, const SampledToken& b) {
  return a.token_id == b.token_id && a.status.ok() == b.status.ok() &&
         std::equal(a.logprobs.begin(),
                    a.logprobs.end(),
                    b.logprobs.begin(),
                    b.logprobs.end(),
                    [](const TokenLogprob& x, const TokenLogprob& y) {
                      return x.token_id == y.token_id && x.logprob == y.logprob && x.rank == y.rank;
                    });
}

TEST(Sampler, ResultDoesNotDependOnBatchOrThreads) {
  constexpr int64_t kVocab = 3001;
  constexpr size_t kRows = 64;
  const std::vector<int32_t> prompt = {1, 2, 3, 2000};
  std::vector<SamplingState> states;
  std::vector<std::vector<float>> rows;
  for (const SamplingParams& params : assorted_params(kRows)) {
    states.emplace_back(params, prompt, std::vector<int32_t>{0}, kVocab);
    for (size_t i = 0; i < rows.size() % 5; ++i) states.back().append(static_cast<int32_t>(i));
    rows.push_back(random_row(kVocab, 3, static_cast<uint32_t>(rows.size() / 3)));
  }
  std::vector<SamplingRow> requests;
  for (const SamplingState& state : states) requests.push_back({&state});
  const auto together = sample(rows, requests, 1);
  const auto threaded = sample(rows, requests, 2);
  const auto reversed = sample({rows.rbegin(), rows.rend()}, {requests.rbegin(), requests.rend()});
  for (size_t i = 0; i < kRows; ++i) {
    ASSERT_TRUE(together[i].status.ok());
    EXPECT_TRUE(same(together[i], threaded[i])) << i;
    EXPECT_TRUE(same(together[i], reversed[kRows - 1 - i])) << i;
    EXPECT_TRUE(same(together[i], sample({rows[i]}, {requests[i]})[0])) << i;
  }
}

TEST(Sampler, BadRowsAreIsolated) {
  std::vector<std::vector<float>> rows(5, random_row(130, 2, 4));
  rows[1][100] = std::nanf("");
  std::fill(rows[2].begin(), rows[2].end(), -kInfinity);
  rows[3][129] = kInfinity;
  for (float temperature : {0.0f, 1.0f}) {
    SamplingParams params = seeded(5);
    params.temperature = temperature;
    params.logprobs = 2;
    const SamplingState state(params, {}, {}, 130);
    const auto out = sample(rows, std::vector<SamplingRow>(5, {&state}));
    for (size_t i : {1, 2, 3}) {
      EXPECT_FALSE(out[i].status.ok());
      EXPECT_EQ(out[i].token_id, -1);
      EXPECT_TRUE(out[i].logprobs.empty());
    }
    EXPECT_TRUE(out[0].status.ok());
    EXPECT_TRUE(same(out[0], out[4]));
    EXPECT_TRUE(same(out[0], sample({rows[0]}, {{&state}})[0]));
  }
}

TEST(Sampler, NanUnderAMaskStillFailsWhenLogprobsAreWanted) {
  std::vector<float> row = {1.0f, std::nanf(""), 0.5f};
  const uint32_t allowed = 0b101;
  SamplingParams params = seeded(1);
  params.temperature = 0;
  const SamplingState state(params, {}, {}, 3);
  EXPECT_EQ(sample({row}, {{&state, &allowed}})[0].token_id, 0);
  params.logprobs = 1;
  const SamplingState scored(params, {}, {}, 3);
  EXPECT_FALSE(sample({row}, {{&scored, &allowed}})[0].status.ok());
}

TEST(Sampler, SeedsDecide) {
  const std::vector<float> row(1000, 0.0f);
  EXPECT_EQ(sample_one(row, seeded(1)), sample_one(row, seeded(1)));
  int num_equal = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    num_equal += sample_one(row, seeded(seed)) == sample_one(row, seeded(seed + 1));
  }
  EXPECT_LE(num_equal, 3);
}

TEST(Sampler, GreedyTakesTheLowestOfEqualTokens) {
  std::vector<float> row = random_row(333, 1, 8);
  row[70] = row[65] = row[300] = 50.0f;
  for (float temperature : {0.0f, 1e-6f}) {
    SamplingParams params = seeded(3);
    params.temperature = temperature;
    EXPECT_EQ(sample_one(row, params), 65);
  }
}

TEST(Sampler, NarrowFiltersAreGreedy) {
  std::vector<float> row = random_row(1000, 1, 8);
  row[600] = row[700] = 4.5f;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SamplingParams params = seeded(seed);
    params.top_k = 1;
    EXPECT_EQ(sample_one(row, params), 600);
    params.top_k = 0;
    params.top_p = 1e-6f;
    EXPECT_EQ(sample_one(row, params), 600);
    params.top_p = 1;
    params.temperature = 1e-4f;
    const int32_t token = sample_one(row, params);
    EXPECT_TRUE(token == 600 || token == 700);
  }
}

// Temperatures whose inverse is no float, alone and with filters and penalties as small.
TEST(Sampler, TheSmallestParametersAreTakenAsTheyAre) {
  std::vector<float> row = random_row(500, 3, 5);
  row[123] = 40;
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  for (const float temperature : {kDenormal, 1e-40f, 1e-38f, 1e-10f, 9e-6f, 1e-5f, 1.1e-5f}) {
    for (const float tiny : {kDenormal, 1e-40f, std::numeric_limits<float>::min()}) {
      SamplingParams params = seeded(3);
      params.temperature = temperature;
      EXPECT_EQ(sample_one(row, params), 123);
      params.top_p = params.min_p = tiny;
      EXPECT_EQ(sample_one(row, params), 123);
      params.top_k = 7;
      params.frequency_penalty = params.presence_penalty = tiny;
      params.logit_bias = {{4, tiny}, {123, -tiny}};
      EXPECT_EQ(sample_one(row, params), 123);
      params.temperature = 1;
      EXPECT_EQ(sample_one(row, params), 123);
    }
  }
}

TEST(Sampler, ExtremeTemperatureAndLogits) {
  std::vector<float> row(100, -1e30f);
  row[17] = 1e30f;
  row[18] = -kInfinity;
  for (float temperature : {1e-5f, 1.0f, 100.0f}) {
    SamplingParams params = seeded(3);
    params.temperature = temperature;
    EXPECT_EQ(sample_one(row, params), 17);
  }
  std::fill(row.begin(), row.end(), -std::numeric_limits<float>::max());
  row[3] = -kInfinity;
  EXPECT_NE(sample_one(row, seeded(4)), 3);
}

TEST(Sampler, PenaltiesBiasAndMaskReachTheChoice) {
  const std::vector<float> row = {0, 3, 2, 1};
  SamplingParams params = seeded(0);
  params.temperature = 0;
  EXPECT_EQ(sample_one(row, params), 1);
  params.logit_bias = {{3, 5.0f}};
  EXPECT_EQ(sample_one(row, params), 3);
  params.logit_bias.clear();
  params.presence_penalty = 2.0f;
  SamplingState state(params, {}, {}, 4);
  state.append(1);
  EXPECT_EQ(sample({row}, {{&state}})[0].token_id, 2);
  params.min_tokens = 5;
  const std::vector<int32_t> eos = {2};
  SamplingState late(params, {}, eos, 4);
  late.append(1);
  EXPECT_EQ(sample({row}, {{&late}})[0].token_id, 1);
  const uint32_t allowed = 0b1001;
  EXPECT_EQ(sample({row}, {{&late, &allowed}})[0].token_id, 3);
  const uint32_t nothing = 0;
  EXPECT_FALSE(sample({row}, {{&late, &nothing}})[0].status.ok());
}

TEST(Sampler, PaddingColumnsAreNeverChosen) {
  std::vector<float> row(100, 0.0f);
  row[99] = 1000.0f;
  row[98] = std::nanf("");
  SamplingParams params = seeded(0);
  params.logprobs = 1;
  SamplingState state(params, {}, {}, 97);
  for (int i = 0; i < 100; ++i) {
    const SampledToken token = sample({row}, {{&state}})[0];
    ASSERT_TRUE(token.status.ok());
    EXPECT_LT(token.token_id, 97);
    EXPECT_NEAR(token.logprobs[0].logprob, -std::log(97.0), 1e-5);
    state.append(token.token_id);
  }
}

TEST(Sampler, LogprobsAreOfTheRawLogits) {
  const std::vector<float> row = {0, 3, 2, 1};
  SamplingParams params = seeded(0);
  params.temperature = 0;
  params.logit_bias = {{0, 50.0f}};
  params.logprobs = 2;
  const SamplingState state(params, {}, {}, 4);
  const SampledToken token = sample({row}, {{&state}})[0];
  ASSERT_TRUE(token.status.ok());
  EXPECT_EQ(token.token_id, 0);
  ASSERT_EQ(token.logprobs.size(), 3u);
  const double log_total = std::log(std::exp(0.0) + std::exp(1.0) + std::exp(2.0) + std::exp(3.0));
  EXPECT_EQ(token.logprobs[0].token_id, 0);
  EXPECT_EQ(token.logprobs[0].rank, 4);
  EXPECT_NEAR(token.logprobs[0].logprob, -log_total, 1e-6);
  EXPECT_EQ(token.logprobs[1].token_id, 1);
  EXPECT_EQ(token.logprobs[1].rank, 1);
  EXPECT_NEAR(token.logprobs[2].logprob, 2 - log_total, 1e-6);
}

TEST(Sampler, ScoresPromptTokens) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  const Tensor logits = Tensor::empty({3, 70}, DType::kFloat32);
  const std::vector<float> row = random_row(210, 2, 1);
  std::copy(row.begin(), row.end(), logits.data<float>());
  logits.data<float>()[75] = std::nanf("");
  const std::vector<ScoredToken> tokens = {{5, 3, 70}, {6, 3, 70}, {7, 0, 69}};
  std::vector<Result<TokenLogprobs>> out(3, TokenLogprobs{});
  Sampler().score(stream, logits, tokens, out);
  EXPECT_FALSE(out[1].ok());
  RowScratch scratch;
  for (size_t i : {0, 2}) {
    ASSERT_TRUE(out[i].ok());
    const auto alone = row_logprobs(row.data() + i * 70,
                                    tokens[i].vocab_size,
                                    tokens[i].token_id,
                                    tokens[i].num_logprobs,
                                    scratch);
    ASSERT_EQ(out[i]->size(), alone->size());
    EXPECT_EQ(out[i]->front().logprob, alone->front().logprob);
  }
}

TEST(Sampler, DryRunAndEmptyBatch) {
  std::vector<SampledToken> out(1);
  Sampler().sample(
      Stream::dry_run(), Tensor::meta({1, 8}, DType::kFloat32), std::vector<SamplingRow>(1), out);
  EXPECT_EQ(out[0].token_id, -1);
  ThreadPool pool(2);
  Sampler().sample(Stream(&pool), Tensor::empty({0, 8}, DType::kFloat32), {}, {});
}

TEST(Sampler, OnlyAllowedTokensCome) {
  const std::vector<float> row = random_row(100, 1, 3);
  SamplingParams params = seeded(1);
  params.allowed_token_ids = {5, 17, 60};
  params.temperature = 5;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    params.seed = seed;
    const int32_t id = sample_one(row, params);
    EXPECT_TRUE(id == 5 || id == 17 || id == 60) << id;
  }
  params.temperature = 0;
  const int32_t best =
      row[5] > row[17] ? (row[5] > row[60] ? 5 : 60) : (row[17] > row[60] ? 17 : 60);
  EXPECT_EQ(sample_one(row, params), best);
}

TEST(Sampler, EndTokensMayNotComeFirstAmongAllowedOnes) {
  const std::vector<float> row = {1, 2, 3, 4};
  SamplingParams params = seeded(1);
  params.temperature = 0;
  params.allowed_token_ids = {1, 2};
  params.stop_token_ids = {2};
  params.min_tokens = 1;
  const SamplingState state(params, {}, {}, 4);
  EXPECT_EQ(sample({row}, {{&state}})[0].token_id, 1);
  params.min_tokens = 0;
  EXPECT_EQ(sample_one(row, params), 2);
}

}  // namespace
}  // namespace atom
