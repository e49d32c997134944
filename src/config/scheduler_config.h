// What the Scheduler and the BlockManager need to know; resolved, no "auto" left.
#pragma once

#include <algorithm>
#include <cstdint>

namespace atom {

// Blocks of a paged cache that hold `num_tokens` tokens.
constexpr int64_t num_blocks_for(int64_t num_tokens, int64_t block_size) {
  return (num_tokens + block_size - 1) / block_size;
}

// Drafts behind a sampled token that one step verifies, at most.
inline constexpr int32_t kMaxSpeculativeTokens = 16;

enum class SchedulingPolicy {
  kFcfs,          // mixed steps: decodes first, then prefill chunks in order of arrival
  kPriority,      // the same, waiting requests ordered by priority, then arrival
  kPrefillFirst,  // whole prefills before decodes, as the original system schedules
};

struct SchedulerConfig {
  int32_t max_num_seqs = 64;              // sequences running at once
  int32_t max_num_batched_tokens = 2048;  // token budget of a step, prefill and decode together
  int32_t max_model_len = 2048;           // prompt + generated tokens of one sequence
  int32_t max_num_waiting = 4096;         // beyond max_num_seqs: more are refused
  int32_t num_blocks = 0;                 // KV blocks of the pool
  int32_t block_size = 16;                // tokens per KV block
  // Layers whose attention has this window, in tokens, give back the blocks that lie wholly behind
  // it. 0: no layer gives back any.
  int32_t kv_window = 0;
  // Layers of one group keep their keys and values in the same blocks of the pool. 2: the last
  // group has the window, and the first, of all other layers, none.
  int32_t num_kv_groups = 1;
  // Recurrent states take 1 + num_speculative_tokens for each running sequence; the rest keeps
  // checkpoints. 0: the model has no states.
  int32_t num_state_slots = 0;
  // Tokens, a multiple of block_size: where prefix caching saves checkpoints. 0: nowhere.
  int32_t state_checkpoint_interval = 0;
  // Also every so many tokens of an answer, rounded up to blocks, each in place of the one before.
  int32_t answer_checkpoint_interval = 64;
  // And where a prompt, or what others share of it, ends, if it saves so many tokens.
  int32_t min_checkpoint_tokens = 512;
  // Tokens of one prompt in one step, where prompts are split; 0: as many as the step takes.
  int32_t long_prefill_token_threshold = 0;
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  // 2 = schedule step n+1 while step n runs; 1 with drafts and one stage
  int32_t max_steps_in_flight = 2;
  // Stages of the pipeline. Steps in flight are of disjoint sequences then, so that each stage
  // has one of its own.
  int32_t num_stages = 1;
  int32_t num_speculative_tokens = 0;  // drafts per sequence and step, at most
  // Positions behind a step's tokens that proposing drafts writes to the cache, where there is
  // room.
  int32_t num_lookahead_tokens = 0;
  // With more sequences running nobody drafts. 0: however many.
  int32_t speculative_disable_by_batch_size = 0;

  // The most sequences that run while drafts are verified.
  int32_t largest_drafting_batch() const {
    const int32_t most = speculative_disable_by_batch_size;
    return most == 0 ? max_num_seqs : std::min(most, max_num_seqs);
  }
  int32_t num_slots_per_sequence() const { return 1 + num_speculative_tokens; }

  int32_t window_of_group(int32_t group) const {
    return group == num_kv_groups - 1 ? kv_window : 0;
  }
  // Leading blocks that lie wholly behind the window of the query at `position`.
  int32_t num_blocks_behind(int32_t position) const {
    return kv_window == 0 ? 0 : std::max(0, position - kv_window + 1) / block_size;
  }
  // Blocks of a group that a sequence of up to `num_tokens` tokens holds at once, at most.
  int64_t max_blocks_of_group(int32_t group, int64_t num_tokens) const {
    const int64_t all = num_blocks_for(num_tokens, block_size);
    if (window_of_group(group) == 0) return all;
    // What a step computes and drafts, and before it what its first token sees, or what is not
    // known yet and so not in the prefix cache.
    const int64_t most = std::max(kv_window - 1, max_steps_in_flight) +
                         int64_t{max_num_batched_tokens} + num_lookahead_tokens;
    return std::min(all, num_blocks_for(most - 1, block_size) + 1);
  }
  // Blocks of all groups together.
  int64_t max_blocks_of_sequence(int64_t num_tokens) const {
    int64_t blocks = 0;
    for (int32_t group = 0; group < num_kv_groups; ++group) {
      blocks += max_blocks_of_group(group, num_tokens);
    }
    return blocks;
  }
};

}  // namespace atom
