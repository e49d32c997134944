// Runs batches of made-up requests through an engine, and measures the machine while it is idle.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cli/bench_work.h"
#include "cli/token_times.h"
#include "engine/llm_engine.h"

namespace atom::cli {

struct BatchShape {
  int32_t batch = 1;       // requests, submitted together
  int32_t input_len = 0;   // tokens of each prompt
  int32_t output_len = 1;  // tokens of each answer
};

// Seconds.
struct BatchFigures {
  double duration = 0;          // first arrival to last token
  double mean_first_token = 0;  // mean time to first token
  double last_first_token = 0;  // first arrival to the last of the first tokens: the prefill
  // The time of a step that gives every request its next token, all prompts being computed; 0 where
  // there is none, as with answers that end while the prompts of others are computed.
  double decode_step = 0;
  double token_gap =
      0;  // between a request's tokens, whatever else steps do: median; 0 of one token
  double overhead_per_step = 0;  // the device waited so long for its next step
  double idle_share = 0;         // of the duration, in which the device waited
  double model_per_step = 0;     // time of the model, per step
  uint64_t num_steps = 0;
  uint64_t num_verifications = 0;  // of a request's drafts by a step
  uint64_t num_draft_tokens = 0;   // that were verified
  // [i]: verifications that accepted more than i drafts
  std::vector<uint64_t> num_accepted_at = {};
};

class BenchSession {
 public:
  // Starts an engine on the device that `config` asks for. What measuring a GPU needs of its memory
  // is taken before, so that the engine plans with the rest.
  static Result<std::unique_ptr<BenchSession>> create(const EngineConfig& config);

  const ResolvedConfig& config() const { return engine_->config(); }
  LLMEngine* engine() const { return engine_.get(); }
  Device device() const { return stream_.device(); }

  // From here on every request has the text of a file: its prompt is the first input_len tokens,
  // its answer those behind, whatever the model says, so that drafts are right as often as they are
  // about this text. Needs the engine's tokenizer.
  Status take_text(const std::string& path);

  // From here on answers are drawn at random; 0: of the likeliest tokens, which made-up weights
  // soon repeat, so that a router sends every request to the same experts.
  void set_temperature(float temperature) { temperature_ = temperature; }

  // Random prompts, or those of take_text(), and answers of exactly output_len tokens.
  // `on_finished` as in LLMEngine::generate. An error when the text has fewer tokens.
  Result<BatchFigures> run(const BatchShape& shape,
                           const std::function<void(size_t)>& on_finished = nullptr);

  // The roofs of the device that the engine computes on: of a CPU with as many threads, of several
  // cards, which are alike, so many times those of the first.
  ops::Roofs measure_roofs();
  int32_t num_cards() const;  // of all ranks; 1 on the CPU

 private:
  BenchSession(std::unique_ptr<LLMEngine> engine, std::unique_ptr<DeviceQueue> queue);

  std::vector<Prompt> prompts_for(const BatchShape& shape);

  std::unique_ptr<LLMEngine> engine_;
  ThreadPool pool_;
  std::unique_ptr<DeviceQueue> queue_;  // null on the CPU
  Stream stream_;
  std::mt19937_64 random_;
  float temperature_ = 0;
  std::vector<int32_t> text_;  // take_text()'s; empty: random prompts
};

// A queue of the GPU, on which roofs were measured once, which takes the memory for that.
Result<std::unique_ptr<DeviceQueue>> open_measured_queue(Device device);
// Seconds for each figure of ops::measure_roofs().
double roof_seconds(Device device);
// "4 threads", or "2 x NVIDIA H200, cuBLASLt 13.1.0".
std::string machine_text(Device device, int32_t num_threads, int32_t num_cards = 1);

ops::Roofs scaled(const ops::Roofs& roofs, double factor);
ops::Roofs mean(const ops::Roofs& a, const ops::Roofs& b);

}  // namespace atom::cli
