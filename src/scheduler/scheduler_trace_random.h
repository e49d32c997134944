// Test support: random configurations of the scheduler, and random requests to it.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "config/sampling_params.h"
#include "config/scheduler_config.h"

namespace atom {

inline constexpr int32_t kTraceVocab = 24;

struct TraceCase {
  SchedulingPolicy policy;
  int32_t max_steps_in_flight;
  bool has_states;  // the model has
  bool has_window;  // of some of its layers, which give blocks back
  bool drafts;
  bool is_pipeline;  // of as many stages as there are steps in flight
};

// For the name of a test.
std::string trace_name(const TraceCase& trace);

// A function of the seed and of the calls so far.
class TraceRandom {
 public:
  explicit TraceRandom(uint64_t seed) : random_(seed) {}

  // Both included.
  int32_t between(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  bool percent(int32_t chance) { return between(0, 99) < chance; }

  SchedulerConfig config(const TraceCase& trace);

  // What prompts begin with part of. Before the first prompt().
  void make_beginnings(int32_t max_model_len);
  // A finished conversation, which later prompts may begin with too.
  void remember(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer);

  // Some have wrong lengths.
  std::vector<int32_t> prompt();
  SamplingParams sampling();

 private:
  std::mt19937_64 random_;
  int32_t max_model_len_ = 0;
  std::vector<int32_t> beginnings_[3];
  std::vector<int32_t> past_;
};

}  // namespace atom
