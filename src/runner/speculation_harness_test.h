// Test support: random requests in a crowd with drafts, which shares prefixes, is cut into chunks
// and preempted, against the same requests without drafts on the same device: on the CPU each
// alone, on the GPU (ATOM_TEST_DEVICE=cuda) 32 at a time, since rows have a fixed order of sums
// there, and many small steps would take minutes. ATOM_TEST_SPECULATION_REQUESTS: requests of each
// case, at least 16.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "runner/runner_harness_test.h"
#include "tests/support/synthetic_checkpoint.h"

namespace atom {

inline constexpr IdRange kGoldenIds{.first = 20, .count = 360};  // of a vocabulary of 384

inline size_t num_speculation_requests() {
  const char* text = std::getenv("ATOM_TEST_SPECULATION_REQUESTS");
  return text == nullptr ? 16 : std::max<size_t>(16, std::stoul(text));
}

inline EngineConfig crowded_with_drafts(SpeculativeMethod method, int32_t num_tokens) {
  EngineConfig config;
  config.model.dtype = DType::kFloat32;
  config.device.deterministic = test_device() == DeviceChoice::kCuda;
  config.scheduler.max_num_seqs = 12;
  config.scheduler.max_num_batched_tokens = 60;
  config.cache.num_blocks = 26;
  config.cache.state_checkpoint_interval = 16;
  config.speculative.method = method;
  config.speculative.num_tokens = num_tokens;
  config.speculative.prompt_lookup_min = 1;
  return config;
}

// Some of them choose among few tokens, so that answers repeat.
inline std::vector<Request> requests_of(size_t count,
                                        uint32_t seed,
                                        const std::vector<int32_t>& few = {30, 31}) {
  std::mt19937 random(seed);
  std::vector<Request> requests = random_requests(count, random, kGoldenIds);
  for (size_t i = 0; i < requests.size(); i += 2) {
    requests[i].sampling.allowed_token_ids = few;
    requests[i].sampling.logit_bias.clear();
  }
  return requests;
}

struct Totals {
  int64_t num_drafts = 0;
  int64_t num_accepted = 0;
};

// What a request gets without drafts.
inline std::vector<Answer> answers_without_drafts(const std::vector<Request>& requests,
                                                  const EngineConfig& config) {
  const bool together = test_device() == DeviceChoice::kCuda;
  return answers_alone(requests, config, test_device(), together ? 32 : 1);
}

// With 1, 2 and 3 drafts.
inline Totals check_drafts(EngineConfig config, const std::vector<Request>& requests) {
  const std::vector<Answer> expected = answers_without_drafts(requests, config);
  Totals totals;
  for (const int32_t num_tokens : {1, 2, 3}) {
    SCOPED_TRACE(num_tokens);
    config.speculative.num_tokens = num_tokens;
    Engine engine(config, test_device());
    const auto due = [](uint64_t step) { return step / 2 + 6; };
    expect_answers(requests, expected, engine.run(requests, due), 2e-3);
    const SchedulerStats stats = engine.stats();
    EXPECT_GT(stats.num_draft_tokens, 0);
    EXPECT_EQ(stats.num_accepted_tokens > 0, stats.num_accepted_at[0] > 0);
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.num_free_state_slots, stats.num_state_slots);
    totals.num_drafts += stats.num_draft_tokens;
    totals.num_accepted += stats.num_accepted_tokens;
  }
  return totals;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

inline void write_head(const nlohmann::json& config,
                       const nlohmann::json& checkpoint,
                       const std::string& folder) {
  const TemporaryFolder described;
  std::ofstream(described.file("config.json")) << config.dump();
  std::ofstream(described.file("checkpoint.json")) << checkpoint.dump();
  const Status made = materialize_checkpoint(described.path(), folder);
  ASSERT_TRUE(made.ok()) << made.message();
}

// A head of tests/data/eagle3 that chooses among the tokens 0 and 31, so that it is often right
// where the answer does, too.
inline void write_head_of_few_ids(const std::string& name, const std::string& folder) {
  const std::string from = golden_folder() + "/../eagle3/" + name;
  nlohmann::json config = read_json(from + "/config.json");
  nlohmann::json checkpoint = read_json(from + "/checkpoint.json");
  nlohmann::json& tensors = checkpoint["tensors"];
  config["draft_vocab_size"] = 2;
  tensors["lm_head.weight"]["shape"] = {2, config["hidden_size"]};
  tensors["d2t"] = {
      {"dtype", "int64"}, {"shape", {2}}, {"gen", {{"kind", "multiples"}, {"step", 30}}}};
  write_head(config, checkpoint, folder);
}

}  // namespace atom
