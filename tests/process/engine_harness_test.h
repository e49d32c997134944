// Test support: engines whose core is a child process, and requests that note what they are told.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/llm_engine.h"
#include "tests/process/process_probe.h"
#include "tests/support/test_folders.h"

namespace atom {

using std::chrono::milliseconds;

// Milliseconds from a death to everybody's knowing of it.
inline constexpr double kNoticeLimit = 100.0 * kTimeScale;

inline EngineConfig demo_config() {
  EngineConfig config;
  config.model.model = demo_model_folder();
  config.model.max_model_len = 512;
  config.cache.num_blocks = 1024;
  config.device.device = DeviceChoice::kCpu;  // where answers do not depend on the batch
  config.device.num_threads = 1;              // on a busy machine the quickest
  return config;
}

inline LLMEngineOptions in_child(const std::string& executable = ATOM_EXECUTABLE) {
  LLMEngineOptions options;
  options.launch.child_process = true;
  options.launch.executable = executable;
  return options;
}

inline std::unique_ptr<LLMEngine> make_engine(const EngineConfig& config,
                                              LLMEngineOptions options) {
  Result<std::unique_ptr<LLMEngine>> engine = LLMEngine::create(config, std::move(options));
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status().message();
    std::abort();
  }
  return std::move(engine).value();
}

inline SamplingParams random(uint64_t seed, int32_t max_tokens) {
  SamplingParams params;
  params.seed = seed;
  params.max_tokens = max_tokens;
  params.ignore_eos = true;
  return params;
}

// A request and what its callback was told.
struct Tracked {
  std::atomic<int> num_tokens{0};
  std::atomic<int> num_final{0};
  Status status;               // of the last call; read after it
  Clock::time_point finished;  // likewise
};

inline Result<RequestId> submit(LLMEngine* engine,
                                const std::shared_ptr<Tracked>& request,
                                const SamplingParams& sampling) {
  return engine->submit(std::vector<int32_t>{1, 2, 3},
                        sampling,
                        [request](const RequestOutput& output, const RequestUpdate& update) {
                          request->num_tokens += static_cast<int>(update.token_ids.size());
                          if (!output.finished) return;
                          request->status = output.status;
                          request->finished = Clock::now();
                          ++request->num_final;
                        });
}

inline bool is_ready(const LLMEngine& engine) {
  return engine.health().state == EngineState::kReady;
}

}  // namespace atom
