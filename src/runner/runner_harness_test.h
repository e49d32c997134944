// Test support: a runner under random requests as an engine core couples it with a scheduler, and
// what each request gets when nothing else runs. ATOM_TEST_DEVICE=cuda runs it on the GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "runner/runner_engine_test.h"

namespace atom {

inline DeviceChoice test_device() {
  const char* device = std::getenv("ATOM_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda" ? DeviceChoice::kCuda
                                                                 : DeviceChoice::kCpu;
}

inline void expect_same(const std::vector<TokenLogprobs>& expected,
                        const std::vector<TokenLogprobs>& got,
                        size_t count,
                        double tolerance) {
  ASSERT_GE(got.size(), count);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    for (size_t k = 0; k < got[i].size(); ++k) {
      EXPECT_NEAR(got[i][k].logprob, expected[i][k].logprob, tolerance);
    }
  }
}

// What each request gets when nothing else runs (or `max_num_seqs` run) and nothing is remembered.
inline std::vector<Answer> answers_alone(const std::vector<Request>& requests,
                                         const EngineConfig& config,
                                         DeviceChoice device,
                                         int32_t max_num_seqs = 1) {
  EngineConfig alone;
  alone.model = config.model;
  alone.cache.dtype = config.cache.dtype;
  alone.device = config.device;
  alone.parallel = config.parallel;
  alone.scheduler.max_num_seqs = max_num_seqs;
  alone.cache.num_blocks = 20 * max_num_seqs;  // of 16 tokens: kMaxModelLen and some
  alone.cache.enable_prefix_caching = false;
  alone.cache.disable_hybrid_kv_cache_manager = true;
  return Engine(alone, device).run(requests, [](uint64_t) { return SIZE_MAX; });
}

// `tolerance`: of log-probabilities.
inline void expect_answers(const std::vector<Request>& requests,
                           const std::vector<Answer>& expected,
                           const std::vector<Answer>& got,
                           double tolerance) {
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {}", i));
    ASSERT_EQ(got[i].error, "");
    const size_t count = got[i].token_ids.size();
    if (requests[i].aborts) {
      ASSERT_GE(count, 1u);
      ASSERT_LE(count, static_cast<size_t>(requests[i].sampling.max_tokens));
    }
    const size_t common = std::min(count, expected[i].token_ids.size());
    if (!requests[i].aborts) {
      EXPECT_EQ(count, expected[i].token_ids.size());
    }
    const std::span ours = std::span(got[i].token_ids).first(common);
    const std::span theirs = std::span(expected[i].token_ids).first(common);
    EXPECT_TRUE(std::ranges::equal(ours, theirs))
        << fmt::format("{}\n{}", fmt::join(ours, " "), fmt::join(theirs, " "));
    if (requests[i].sampling.logprobs) {
      expect_same(expected[i].logprobs, got[i].logprobs, common, tolerance);
    }
    if (requests[i].sampling.prompt_logprobs) {
      const size_t num_scored = requests[i].prompt.size() - 1;
      expect_same(expected[i].prompt_logprobs, got[i].prompt_logprobs, num_scored, tolerance);
    }
  }
}

}  // namespace atom
