// Test support: small configurations and scripted answers for the Scheduler's unit tests.
#pragma once

#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace atom {

using Ids = std::vector<SequenceId>;

inline constexpr int32_t kEosToken = 2;
inline constexpr int32_t kPlainToken = 100;

inline SchedulerConfig small_config() {
  SchedulerConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 16;
  config.max_model_len = 64;
  config.max_num_waiting = 8;
  config.num_blocks = 32;
  config.block_size = 4;
  config.max_steps_in_flight = 1;
  return config;
}

inline SamplingParams ask_for(int32_t max_tokens) {
  SamplingParams sampling;
  sampling.seed = 1;
  sampling.max_tokens = max_tokens;
  return sampling;
}

// Tokens first, first + 1, ...
inline std::vector<int32_t> prompt_of(int32_t num_tokens, int32_t first = 1000) {
  std::vector<int32_t> prompt(num_tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

// Every sequence that samples gets its token of `tokens`, or kPlainToken.
inline ModelRunnerOutput answer_to(const SchedulerOutput& output,
                                   const std::map<SequenceId, int32_t>& tokens = {}) {
  ModelRunnerOutput answer{.step = output.step, .sequences = {}};
  for (const ScheduledSequence& scheduled : output.scheduled) {
    SequenceOutput& sequence = answer.sequences.emplace_back();
    sequence.id = scheduled.id;
    if (!scheduled.samples()) continue;
    const auto found = tokens.find(scheduled.id);
    sequence.token_ids = {found == tokens.end() ? kPlainToken : found->second};
  }
  return answer;
}

// Schedules one step and answers it.
inline std::vector<SequenceUpdate> run_step(Scheduler& scheduler,
                                            const std::map<SequenceId, int32_t>& tokens = {}) {
  const SchedulerOutput output = scheduler.schedule();
  if (output.empty()) return {};
  return scheduler.postprocess(output, answer_to(output, tokens));
}

inline Ids ids_of(const SchedulerOutput& output) {
  Ids ids;
  for (const ScheduledSequence& scheduled : output.scheduled) ids.push_back(scheduled.id);
  return ids;
}

}  // namespace atom
