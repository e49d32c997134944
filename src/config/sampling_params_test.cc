#include "config/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace atom {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kVocabSize = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(SamplingParams, DefaultsAreValid) {
  EXPECT_TRUE(SamplingParams().validate(kVocabSize).ok());
}

struct FloatField {
  const char* name;
  float SamplingParams::*field;
  std::vector<float> good;
  std::vector<float> bad;
};

TEST(SamplingParams, FloatFields) {
  const std::vector<FloatField> fields = {
      {"temperature", &SamplingParams::temperature, {0, 1e-8f, 1, 100}, {-0.1f, 100.1f}},
      {"top_p", &SamplingParams::top_p, {1e-6f, 1}, {0, -1, 1.01f}},
      {"min_p", &SamplingParams::min_p, {0, 1}, {-0.1f, 1.01f}},
      {"presence_penalty", &SamplingParams::presence_penalty, {-2, 2}, {-2.1f, 2.1f}},
      {"frequency_penalty", &SamplingParams::frequency_penalty, {-2, 2}, {-2.1f, 2.1f}},
      {"repetition_penalty",
       &SamplingParams::repetition_penalty,
       {0.1f, 100},
       {0, 1e-7f, -1, 101}}};
  for (const FloatField& field : fields) {
    for (float value : field.good) {
      SamplingParams params;
      params.*field.field = value;
      EXPECT_TRUE(params.validate(kVocabSize).ok()) << field.name << " " << value;
    }
    std::vector<float> bad = field.bad;
    bad.insert(bad.end(), {kNan, kInfinity, -kInfinity});
    for (float value : bad) {
      SamplingParams params;
      params.*field.field = value;
      EXPECT_THAT(params.validate(kVocabSize).message(),
                  StartsWith(fmt::format("{} is {}; expected a number in ", field.name, value)));
    }
  }
}

struct IntField {
  const char* name;
  int32_t SamplingParams::*field;
  std::vector<int32_t> good;
  std::vector<int32_t> bad;
};

TEST(SamplingParams, IntegerFields) {
  const std::vector<IntField> fields = {
      {"n", &SamplingParams::n, {1, SamplingParams::kMaxN}, {0, -1, SamplingParams::kMaxN + 1}},
      {"top_k", &SamplingParams::top_k, {-1, 0, 1, INT32_MAX}, {-2, INT32_MIN}},
      {"max_tokens", &SamplingParams::max_tokens, {0, INT32_MAX}, {-1}},
      {"min_tokens", &SamplingParams::min_tokens, {0, 16}, {-1, 17}}};
  for (const IntField& field : fields) {
    for (int32_t value : field.good) {
      SamplingParams params;
      params.*field.field = value;
      EXPECT_TRUE(params.validate(kVocabSize).ok()) << field.name << " " << value;
    }
    for (int32_t value : field.bad) {
      SamplingParams params;
      params.*field.field = value;
      EXPECT_THAT(params.validate(kVocabSize).message(),
                  StartsWith(fmt::format("{} is {}; expected an integer in [", field.name, value)));
    }
  }
}

TEST(SamplingParams, ManyGreedyAnswersAreFine) {
  SamplingParams params;
  params.n = 4;
  params.temperature = 0;
  EXPECT_TRUE(params.validate(kVocabSize).ok());
  EXPECT_TRUE(params.is_greedy());
}

TEST(SamplingParams, LogitBias) {
  SamplingParams params;
  params.logit_bias = {{0, -100.0f}, {99, 100.0f}};
  EXPECT_TRUE(params.validate(kVocabSize).ok());
  for (const std::pair<int32_t, float>& bias :
       {std::pair(100, 0.0f), {-1, 0.0f}, {0, 101.0f}, {0, kNan}, {0, kInfinity}}) {
    params.logit_bias = {bias};
    EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("of logit_bias is "));
  }
  params.logit_bias.assign(5000, {1, 1.0f});
  EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("logit_bias has 5000 entries"));
}

TEST(SamplingParams, Stop) {
  SamplingParams params;
  params.stop = {"\n\n", std::string(4096, 'x')};
  params.stop_token_ids = {0, 99};
  EXPECT_TRUE(params.validate(kVocabSize).ok());
  params.stop = {""};
  EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("stop contains an empty string"));
  params.stop = {std::string(4097, 'x')};
  EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("a string of 4097 bytes"));
  params.stop.assign(65, "x");
  EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("stop has 65 entries"));
  params.stop.clear();
  for (int32_t id : {-1, 100}) {
    params.stop_token_ids = {id};
    EXPECT_THAT(params.validate(kVocabSize).message(),
                HasSubstr(fmt::format("stop_token_ids is {}; expected an integer in [0, 99]", id)));
  }
  params.stop_token_ids.assign(2000, 1);
  EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("stop_token_ids has 2000"));
}

TEST(SamplingParams, LogprobsAndSalt) {
  SamplingParams params;
  params.logprobs = 0;
  params.prompt_logprobs = SamplingParams::kMaxLogprobs;
  EXPECT_TRUE(params.validate(kVocabSize).ok());
  params.logprobs = -1;
  EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("logprobs is -1"));
  params.logprobs.reset();
  params.prompt_logprobs = SamplingParams::kMaxLogprobs + 1;
  EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("prompt_logprobs is 65"));
  params.prompt_logprobs.reset();
  params.cache_salt = std::string(1089, 's');
  EXPECT_THAT(params.validate(kVocabSize).message(), HasSubstr("cache_salt has 1089 bytes"));
}

}  // namespace
}  // namespace atom
