// Answers that follow grammars under random schedules, with preemptions and drafts, against those
// that each request gets alone. ATOM_TEST_DEVICE=cuda as for model_runner_test.cc.
#include "runner/grammar_masks.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "runner/runner_harness_test.h"
#include "structured_output/grammar_compiler.h"
#include "structured_output/structural_tag.h"
#include "tokenizer/tokenizer.h"

namespace atom {
namespace {

constexpr size_t kNumConstrained = 48;
constexpr const char* kPatterns[] = {"[a-z ]{60}", "([0-9]{3},){8}[0-9]{3}", "(left|right){1,9}"};

struct Constrained {
  std::vector<Request> requests;
  std::vector<const char*> patterns;  // of each; null: any answer
};

Constrained random_constrained(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ends = load_model_config(demo_model_folder()).value().eos_token_ids;
  const auto compiler = GrammarCompiler::create(tokenizer, tokenizer.vocab_size(), ends).value();
  std::mt19937 random(11);
  Constrained result;
  result.requests = random_requests(kNumConstrained, random);
  result.patterns.resize(kNumConstrained);
  for (size_t i = 0; i < kNumConstrained; ++i) {
    if (i % 4 == 3) continue;
    Request& request = result.requests[i];
    const char* pattern = kPatterns[i % 4];
    const std::string tag =
        structural_tag_text(regex_format(pattern, "regex").value(), "regex").value();
    request.grammar = compiler->compile(tag).value();
    result.patterns[i] = pattern;
  }
  return result;
}

void check_constrained(EngineConfig config) {
  const auto tokenizer = Tokenizer::load(demo_model_folder()).value();
  const Constrained constrained = random_constrained(*tokenizer);
  const std::vector<Request>& requests = constrained.requests;
  const std::vector<Answer> expected = answers_alone(requests, config, DeviceChoice::kCpu);
  Engine engine(config, test_device());
  const std::vector<Answer> got = engine.run(requests, [](uint64_t step) { return step / 2 + 6; });
  expect_answers(requests, expected, got, 2e-3);
  EXPECT_GT(engine.stats().num_preemptions, 0);
  size_t num_complete = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (constrained.patterns[i] == nullptr || requests[i].aborts) continue;
    const std::string text = tokenizer->decode(got[i].token_ids, /*skip_special_tokens=*/true);
    const bool is_complete =
        static_cast<int32_t>(got[i].token_ids.size()) < requests[i].sampling.max_tokens;
    num_complete += is_complete ? 1 : 0;
    if (is_complete) {
      EXPECT_TRUE(std::regex_match(text, std::regex(constrained.patterns[i]))) << text;
    }
  }
  EXPECT_GT(num_complete, 5u);
}

EngineConfig crowded_pool() {
  EngineConfig config;
  config.model.dtype = DType::kFloat32;
  config.scheduler.max_num_seqs = 12;
  config.scheduler.max_num_batched_tokens = 48;
  config.cache.num_blocks = 24;
  return config;
}

TEST(GrammarMasks, RandomBatchesGiveWhatEachRequestGetsAlone) {
  check_constrained(crowded_pool());
}

TEST(GrammarMasks, TheSameWithoutRecordedSteps) {
  EngineConfig config = crowded_pool();
  config.device.enable_graphs = false;
  check_constrained(config);
}

TEST(GrammarMasks, TheSameWithDrafts) {
  EngineConfig config = crowded_pool();
  config.speculative.method = SpeculativeMethod::kNgram;
  config.speculative.num_tokens = 3;
  config.speculative.prompt_lookup_min = 1;
  check_constrained(config);
}

TEST(GrammarMasks, TheSameOnRanks) {
  if (test_device() == DeviceChoice::kCuda) GTEST_SKIP() << "ranks compute on the CPU alone";
  EngineConfig config = crowded_pool();
  config.parallel.tensor_parallel_size = 2;
  check_constrained(config);
}

}  // namespace
}  // namespace atom
