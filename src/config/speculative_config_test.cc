#include "config/speculative_config.h"

#include <gtest/gtest.h>

#include "config/flags.h"

namespace atom {
namespace {

std::string refusal(const SpeculativeOptions& options) {
  return std::string(resolve_speculative(options).status().message());
}

std::string refusal(const std::string& json) {
  SpeculativeOptions options;
  options.json = json;
  return refusal(options);
}

TEST(SpeculativeConfig, IsOffUnlessAskedFor) {
  SchedulerConfig scheduler;
  set_speculation(resolve_speculative({}).value(), &scheduler);
  EXPECT_EQ(scheduler.num_speculative_tokens, 0);
  EXPECT_EQ(scheduler.max_steps_in_flight, 2);
}

TEST(SpeculativeConfig, ReadsVllmsObject) {
  SpeculativeOptions options;
  options.json = R"({"method": "deepseek_mtp", "num_speculative_tokens": 3,
                     "disable_by_batch_size": 7})";
  SpeculativeOptions resolved = resolve_speculative(options).value();
  EXPECT_EQ(resolved.method, SpeculativeMethod::kMtp);
  EXPECT_EQ(resolved.num_tokens, 3);
  EXPECT_EQ(resolved.disable_by_batch_size, 7);
  SchedulerConfig scheduler;
  set_speculation(resolved, &scheduler);
  EXPECT_EQ(scheduler.num_speculative_tokens, 3);
  EXPECT_EQ(scheduler.num_lookahead_tokens, 2);
  EXPECT_EQ(scheduler.max_steps_in_flight, 1);

  options.json = R"({"method": "ngram", "prompt_lookup_max": 5})";
  resolved = resolve_speculative(options).value();
  EXPECT_EQ(resolved.prompt_lookup_min, 5);
  EXPECT_EQ(resolved.prompt_lookup_max, 5);
  options.json = R"({"method": "eagle3", "model": "/drafts"})";
  EXPECT_EQ(resolve_speculative(options).value().draft_model, "/drafts");
}

TEST(SpeculativeConfig, ReadsWhatVllmsUsersMayLeaveOutOrSayOnceMore) {
  const DraftedModel drafted = {.name = "/model", .tensor_parallel_size = 2};
  const auto resolved = [&](const std::string& json) {
    SpeculativeOptions options;
    options.json = json;
    return resolve_speculative(options, drafted).value();
  };
  EXPECT_EQ(resolved(R"({"model": "/drafts"})").method, SpeculativeMethod::kEagle3);
  for (const char* json : {R"({"model": "ngram"})",
                           R"({"model": "[ngram]", "prompt_lookup_max": 3})",
                           R"({"model": "ngram", "method": "ngram"})"}) {
    EXPECT_EQ(resolved(json).method, SpeculativeMethod::kNgram) << json;
    EXPECT_EQ(resolved(json).draft_model, "") << json;
  }
  EXPECT_EQ(resolved(R"({"method": "mtp", "model": "/model"})").draft_model, "");
  EXPECT_EQ(resolved(R"({"method": "mtp", "draft_tensor_parallel_size": 2})").method,
            SpeculativeMethod::kMtp);
}

TEST(SpeculativeConfig, SaysWhatHoldsInsteadOfVllmsOtherKeys) {
  EXPECT_NE(refusal(R"({"method": "mtp", "quantization": "fp8"})").find("checkpoint stores them"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "mtp", "max_model_len": 100})").find("--max-model-len"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "mtp", "draft_tensor_parallel_size": 2})")
                .find("--tensor-parallel-size"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "mtp", "model": "/other"})").find("/other"), std::string::npos);
  EXPECT_NE(refusal(R"({"num_speculative_tokens": 2})").find("'method'"), std::string::npos);
}

TEST(SpeculativeConfig, ForcedAcceptanceIsANumberOrAShareOfDrafts) {
  SpeculativeOptions options;
  options.method = SpeculativeMethod::kNgram;
  options.num_tokens = 3;
  EXPECT_LT(resolve_speculative(options).value().forced_acceptance, 0);
  options.forced_acceptance_rate = 0.5;
  EXPECT_EQ(resolve_speculative(options).value().forced_acceptance, 1.5);
  options.forced_acceptance = 2;
  EXPECT_NE(refusal(options).find("exclude each other"), std::string::npos);
}

TEST(SpeculativeConfig, TheDeviceChoosesTheLargestBatchThatNobodyChose) {
  const auto largest = [](int32_t chosen, bool is_cpu) {
    SpeculativeOptions options;
    options.method = SpeculativeMethod::kNgram;
    options.disable_by_batch_size = chosen;
    SchedulerConfig scheduler;
    set_speculation(resolve_speculative(options).value(), &scheduler);
    set_drafting_batch(options, is_cpu, &scheduler);
    return scheduler.speculative_disable_by_batch_size;
  };
  EXPECT_EQ(largest(0, true), 3);
  EXPECT_EQ(largest(0, false), 64);
  EXPECT_EQ(largest(40, true), 40);
  EXPECT_EQ(largest(40, false), 40);
}

TEST(SpeculativeConfig, RefusesWhatDoesNotFit) {
  EXPECT_NE(refusal(R"({"method": "mtp", "num_speculative_tokens": 17})").find("17"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "mtp", "num_speculative_tokens": 0})").find("'num_spec"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"method": "medusa"})").find("medusa"), std::string::npos);
  EXPECT_NE(refusal(R"({"methd": "mtp"})").find("methd"), std::string::npos);
  EXPECT_NE(refusal("[]").find("JSON object"), std::string::npos);
  SpeculativeOptions options;
  options.method = SpeculativeMethod::kEagle3;
  EXPECT_NE(refusal(options).find("--draft-model"), std::string::npos);
  options.method = SpeculativeMethod::kMtp;
  options.draft_model = "/drafts";
  EXPECT_NE(refusal(options).find("only --method eagle3"), std::string::npos);
  options = {};
  options.method = SpeculativeMethod::kNgram;
  options.draft_head_dtype = DraftHeadDType::kFloat8;
  EXPECT_NE(refusal(options).find("--draft-head-dtype"), std::string::npos);
  options = {};
  options.num_tokens = 3;
  EXPECT_NE(refusal(options).find("need a --method"), std::string::npos);
  options = {};
  options.method = SpeculativeMethod::kNgram;
  options.prompt_lookup_min = 5;
  EXPECT_NE(refusal(options).find("--prompt-lookup-min 5"), std::string::npos);
  options.json = "{}";
  EXPECT_NE(refusal(options).find("exclude each other"), std::string::npos);
}

TEST(SpeculativeConfig, FlagsTakeOneToSixteenTokens) {
  EngineConfig config;
  const FlagSpec& flag = *find_flag("num-speculative-tokens");
  for (const char* value : {"0", "17", "-1"}) {
    const Status status = flag.set(&config, value);
    EXPECT_NE(status.message().find("--num-speculative-tokens"), std::string::npos) << value;
  }
  EXPECT_TRUE(flag.set(&config, "16").ok());
  EXPECT_EQ(config.speculative.num_tokens, 16);
}

}  // namespace
}  // namespace atom
