// Runs batches of made-up requests through an engine, and measures the machine while it is idle.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "cli/bench_work.h"
#include "engine/llm_engine.h"

namespace atom::cli {

struct BatchShape {
  int32_t batch = 1;       // requests, submitted together
  int32_t input_len = 0;   // tokens of each prompt
  int32_t output_len = 1;  // tokens of each answer
};

// Seconds.
struct BatchFigures {
  double duration = 0;           // first arrival to last token
  double mean_first_token = 0;   // mean time to first token
  double last_first_token = 0;   // first arrival to the last of the first tokens: the prefill
  double decode_step = 0;        // median time between tokens; 0 for answers of one token
  double overhead_per_step = 0;  // the device waited so long for its next step
  double model_per_step = 0;     // time of the model, per step
  uint64_t num_steps = 0;
};

class BenchSession {
 public:
  explicit BenchSession(std::unique_ptr<LLMEngine> engine);

  const ResolvedConfig& config() const { return engine_->config(); }

  // Random prompts, answers of exactly output_len tokens. `on_finished` as in
  // LLMEngine::generate.
  Result<BatchFigures> run(const BatchShape& shape,
                           const std::function<void(size_t)>& on_finished = nullptr);

  // With as many threads as the engine computes with.
  ops::CpuRoofs measure_roofs();

 private:
  std::vector<Prompt> random_prompts(const BatchShape& shape);

  std::unique_ptr<LLMEngine> engine_;
  ThreadPool pool_;
  Stream stream_;
  std::mt19937_64 random_;
};

double median(std::vector<double> values);  // 0 of none
ops::CpuRoofs mean(const ops::CpuRoofs& a, const ops::CpuRoofs& b);

}  // namespace atom::cli
