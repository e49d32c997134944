// --deterministic: a request gets the same bits whatever a step holds beside it, and however its
// prompt was cut or cached. ATOM_TEST_DEVICE=cuda computes on the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "runner/runner_harness_test.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

struct Crowd {
  int32_t max_num_seqs;
  int32_t max_num_batched_tokens;
  int32_t num_blocks;
};

// Every way in which steps can be cut, on the same requests: crowds of all sizes, prompts in pieces
// of a few tokens and whole, with hits of the prefix cache, with preemptions and without.
void check_deterministic(EngineConfig config, size_t num_requests_on_gpu = 200, IdRange ids = {}) {
  config.device.deterministic = true;
  std::vector<Crowd> crowds = {{12, 48, 24}, {3, 5, 64}, {40, 1000, 90}, {200, 2000, 2000}};
  size_t num_requests = num_requests_on_gpu;
  if (test_device() == DeviceChoice::kCpu) {
    crowds = {{12, 48, 17}, {3, 5, 64}};
    num_requests = 20;
  }
  std::mt19937 random(11);
  const std::vector<Request> requests = random_requests(num_requests, random, ids);
  const std::vector<Answer> expected = answers_alone(requests, config, test_device());
  int64_t num_hits = 0, num_preemptions = 0;
  for (const Crowd& crowd : crowds) {
    SCOPED_TRACE(fmt::format("{} sequences, {} tokens in a step, {} blocks",
                             crowd.max_num_seqs,
                             crowd.max_num_batched_tokens,
                             crowd.num_blocks));
    config.scheduler.max_num_seqs = crowd.max_num_seqs;
    config.scheduler.max_num_batched_tokens = crowd.max_num_batched_tokens;
    config.cache.num_blocks = crowd.num_blocks;
    Engine engine(config, test_device());
    // Arriving at random times, so that each meets other companions in each crowd.
    std::vector<uint64_t> arrivals(num_requests);
    for (uint64_t& arrival : arrivals) arrival = random() % (num_requests * 3 / 2);
    std::sort(arrivals.begin(), arrivals.end());
    const auto due = [&](uint64_t step) {
      return static_cast<size_t>(std::upper_bound(arrivals.begin(), arrivals.end(), step) -
                                 arrivals.begin());
    };
    expect_answers(requests, expected, engine.run(requests, due), 0);
    num_hits += engine.stats().num_prefix_hit_tokens;
    num_preemptions += engine.stats().num_preemptions;
  }
  EXPECT_GT(num_hits, 0);
  EXPECT_GT(num_preemptions, 0);
}

TEST(Deterministic, DenseInBfloat16) {
  EngineConfig config;
  config.model.dtype = DType::kBFloat16;
  check_deterministic(config);
}

TEST(Deterministic, DenseInFloat32) {
  EngineConfig config;
  config.model.dtype = DType::kFloat32;
  check_deterministic(config);
}

TEST(Deterministic, DenseInFloat8) {
  EngineConfig config;
  config.model.dtype = DType::kBFloat16;
  config.model.quantization = QuantizationChoice::kFp8;
  config.cache.dtype = DType::kFloat8E4M3;
  check_deterministic(config);
}

// The config.json of a golden case with other sizes, those of kernels for Hopper, and made-up
// weights.
void check_shape(const char* golden,
                 const nlohmann::json& changes,
                 DType dtype = DType::kBFloat16) {
  std::ifstream file(golden_folder() + "/" + golden + "/config.json");
  nlohmann::json shape = nlohmann::json::parse(file);
  shape.update(changes);
  const TemporaryFolder folder;
  std::ofstream(folder.file("config.json")) << shape.dump();
  EngineConfig config;
  config.model.model = folder.path();
  config.model.load_dummy = DummyWeights::kRandom;
  config.model.dtype = dtype;
  config.cache.state_checkpoint_interval = 16;
  config.cache.disable_hybrid_kv_cache_manager = true;  // one pool, so that few blocks preempt
  check_deterministic(config, 60, {.first = 20, .count = 360});
}

const nlohmann::json kBlocksOfFloat8 = {{"quant_method", "fp8"},
                                        {"fmt", "e4m3"},
                                        {"activation_scheme", "dynamic"},
                                        {"weight_block_size", {128, 128}}};
const nlohmann::json kExperts = {{"hidden_size", 256},
                                 {"intermediate_size", 512},
                                 {"moe_intermediate_size", 128},
                                 {"num_experts", 16},
                                 {"num_experts_per_tok", 4}};

nlohmann::json with(nlohmann::json shape, const nlohmann::json& changes) {
  shape.update(changes);
  return shape;
}

TEST(Deterministic, ExpertsInBfloat16) {
  check_shape("qwen3-moe", kExperts);
}

// As many experts as let a turn of fused_moe=skinny take 256 tokens.
TEST(Deterministic, ExpertsInFloat8) {
  check_shape("qwen3-moe",
              with(kExperts, {{"num_experts", 64}, {"quantization_config", kBlocksOfFloat8}}));
}

TEST(Deterministic, ExpertsInMxfp4) {
  check_shape("gpt-oss-mxfp4", {{"hidden_size", 256}, {"intermediate_size", 128}});
}

TEST(Deterministic, HybridInBfloat16) {
  check_shape("qwen3-next", with(kExperts, {{"shared_expert_intermediate_size", 128}}));
}

TEST(Deterministic, HybridInFloat32) {
  check_shape("qwen3-next", nlohmann::json::object(), DType::kFloat32);
}

TEST(Deterministic, HybridThatSelects) {
  check_shape("qwen3-next-qsa", nlohmann::json::object());
}

TEST(Deterministic, LatentAttentionInFloat8) {
  check_shape("deepseek-v3",
              {{"hidden_size", 256},
               {"moe_intermediate_size", 128},
               {"quantization_config", kBlocksOfFloat8}});
}

TEST(Deterministic, LatentAttentionThatSelects) {
  check_shape("deepseek-v32", {{"hidden_size", 256}, {"moe_intermediate_size", 128}});
}

}  // namespace
}  // namespace atom
