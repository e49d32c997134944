#include "scheduler/scheduler_trace_random.h"

#include <fmt/format.h>

#include <algorithm>

namespace atom {

std::string trace_name(const TraceCase& trace) {
  constexpr const char* kPolicies[] = {"Fcfs", "Priority", "PrefillFirst"};
  return fmt::format("{}{}{}{}{}{}",
                     kPolicies[static_cast<int>(trace.policy)],
                     trace.is_pipeline ? "Stages" : "Lag",
                     trace.max_steps_in_flight,
                     trace.has_states ? "WithStates" : "",
                     trace.has_window ? "WithWindow" : "",
                     trace.drafts ? "WithDrafts" : "");
}

SchedulerConfig TraceRandom::config(const TraceCase& trace) {
  constexpr int32_t kBlockSizes[] = {1, 2, 3, 4, 8, 16};
  SchedulerConfig config;
  config.block_size = kBlockSizes[between(0, 5)];
  config.max_model_len = between(8, 64);
  config.max_num_seqs = between(1, 12);
  config.max_num_batched_tokens = percent(20) ? between(1, 8) : between(8, 80);
  config.max_num_waiting = percent(50) ? between(1, 8) : 1000;
  config.enable_prefix_caching = percent(85);
  config.enable_chunked_prefill = percent(65);
  config.policy = trace.policy;
  config.max_steps_in_flight = trace.max_steps_in_flight;
  if (trace.is_pipeline) config.num_stages = trace.max_steps_in_flight;
  if (trace.drafts) {
    config.num_speculative_tokens = percent(10) ? kMaxSpeculativeTokens : between(1, 5);
    config.num_lookahead_tokens = percent(50) ? 0 : config.num_speculative_tokens - 1;
    config.speculative_disable_by_batch_size = percent(70) ? 0 : between(1, config.max_num_seqs);
  }
  if (trace.has_window) {
    config.kv_window = percent(50) ? between(1, 8) : between(1, config.max_model_len);
    config.num_kv_groups = percent(75) ? 2 : 1;
  }
  const auto whole = static_cast<int32_t>(config.max_blocks_of_sequence(config.max_model_len));
  config.num_blocks = std::max(config.num_kv_groups,
                               whole * (percent(60) ? between(100, 200) : between(50, 400)) / 100);
  if (trace.has_states) {
    const int32_t num_slots = percent(30) ? between(1, 4) : config.max_num_seqs + between(1, 24);
    config.num_state_slots = num_slots * config.num_slots_per_sequence();
    config.state_checkpoint_interval = percent(90) ? between(1, 4) * config.block_size : 0;
    config.answer_checkpoint_interval = between(1, 3 * config.block_size);
    config.min_checkpoint_tokens = percent(50) ? 512 : between(1, 3 * config.block_size);
  }
  return config;
}

void TraceRandom::make_beginnings(int32_t max_model_len) {
  max_model_len_ = max_model_len;
  for (auto& tokens : beginnings_) {
    for (int i = 0; i < max_model_len; ++i) tokens.push_back(between(0, kTraceVocab - 1));
  }
}

void TraceRandom::remember(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer) {
  past_ = prompt;
  past_.insert(past_.end(), answer.begin(), answer.end());
}

std::vector<int32_t> TraceRandom::prompt() {
  if (percent(1)) return {};
  const std::vector<int32_t>& base =
      percent(30) && !past_.empty() ? past_ : beginnings_[between(0, 2)];
  const int32_t num_shared = between(0, std::min<int32_t>(base.size(), max_model_len_));
  std::vector<int32_t> prompt(base.begin(), base.begin() + num_shared);
  const int32_t num_own = percent(40) ? 0 : between(0, 10);
  for (int i = 0; i < num_own; ++i) prompt.push_back(between(0, kTraceVocab - 1));
  if (prompt.empty()) prompt.push_back(between(0, kTraceVocab - 1));
  return prompt;
}

SamplingParams TraceRandom::sampling() {
  constexpr const char* kSalts[] = {"", "", "a", "b"};
  SamplingParams sampling;
  sampling.seed = between(0, 3);
  sampling.max_tokens = percent(5) ? 0 : percent(20) ? 1'000'000 : between(1, 24);
  sampling.min_tokens = percent(30) ? between(0, 8) : 0;
  sampling.ignore_eos = percent(50);
  if (percent(30)) {
    sampling.stop_token_ids = {between(0, kTraceVocab - 1), between(0, kTraceVocab - 1)};
  }
  if (percent(10)) sampling.prompt_logprobs = 0;
  if (percent(10)) sampling.logprobs = 0;
  sampling.priority = between(-2, 2);
  sampling.cache_salt = kSalts[between(0, 3)];
  return sampling;
}

}  // namespace atom
