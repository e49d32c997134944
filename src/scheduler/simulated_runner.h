// Test support: a runner without a model that obeys SchedulerOutput to the letter and checks it.
//
// The "KV" of a position is a hash of the salt and all tokens up to it, kept per (block, offset) as
// a real cache would be, so a wrongly shared block, a stale prefix hit, a lost or doubled write all
// read as a wrong hash. The next token is a function of that hash and the request's seed.
//
// The state of a sequence is the same hash, kept in its slot and extended token by token, so a
// wrong restore or save, or a slot with two users, reads as a wrong hash too.
//
// In a pipeline it is told, before it computes a token, what it has sampled, and the drafts.
//
// With speculation it proposes drafts of which each is right with a chance drawn per runner, and
// writes over the positions behind the last token, as drafting does.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/scheduler_config.h"
#include "scheduler/scheduler_output.h"

namespace atom {

class SimulatedRunner {
 public:
  SimulatedRunner(const SchedulerConfig& config,
                  std::vector<int32_t> eos_token_ids,
                  int32_t vocab_size);

  // Executes the next step in order.
  ModelRunnerOutput execute(const SchedulerOutput& output);

  // What the scheduler did wrong first; empty: nothing.
  const std::string& error() const { return error_; }
  size_t num_sequences() const { return sequences_.size(); }

 private:
  struct SequenceState {
    SamplingParams sampling;
    int32_t num_prompt_tokens = 0;
    size_t num_told = 0;  // tokens that the first stage of a pipeline knows
    std::vector<int32_t> token_ids;
    std::vector<uint64_t> prefix_hashes;  // of token_ids[0..i]
    std::vector<int32_t> block_ids;       // [blocks of tokens, groups of layers]
    std::vector<int32_t> state_slots;
    size_t state_index = 0;                // which of them holds the state
    std::vector<int32_t> drafts;           // of what follows token_ids
    std::vector<uint64_t> drafted_hashes;  // of the tokens up to drafts[i]
    int32_t num_reserved = 0;              // tokens that the blocks may have been asked for
    int32_t next_token = 0;                // first token not computed
    bool in_prefill = true;
    uint64_t last_step = UINT64_MAX;
  };
  struct BlockState {
    SequenceId owner = 0;
    int32_t group = 0;
    int32_t num_written = 0;
  };

  template <typename... Args>
  void expect(bool condition, const char* what, Args... values);

  void push_token(SequenceState& state, int32_t token_id);
  void check_step(const SchedulerOutput& output);
  void check_blocks(const ScheduledSequence& scheduled,
                    const SequenceState& state,
                    int32_t num_shared);
  void check_told(const ScheduledSequence& scheduled, SequenceState& state);
  void apply_blocks(const ScheduledSequence& scheduled, SequenceState& state);
  void take_slot(const ScheduledSequence& scheduled, SequenceState& state);
  void copy_states(const std::vector<StateCopy>& copies);
  void advance_state(const ScheduledSequence& scheduled, SequenceState& state);
  void check_copies(const SchedulerOutput& output);
  void write(const ScheduledSequence& scheduled, const SequenceState& state);
  void check_reads(const ScheduledSequence& scheduled, const SequenceState& state);
  SequenceOutput answer(const ScheduledSequence& scheduled, SequenceState& state);
  // Behind the token at `position`, which precedes output `num_outputs`.
  int32_t sample(const SequenceState& state, int32_t position, int32_t num_outputs);
  void forget_rejected(const ScheduledSequence& scheduled, SequenceState& state);
  void propose(SequenceState& state);
  uint64_t draw();
  // Hashes the tokens up to `position`, which may be a draft's.
  static uint64_t hash_at(const SequenceState& state, int32_t position);
  int32_t block_at(const SequenceState& state, int32_t position, int32_t group) const {
    const size_t index = position / config_.block_size;
    return state.block_ids[index * config_.num_kv_groups + group];
  }
  uint64_t& slot(const SequenceState& state, int32_t position, int32_t group = 0);

  const SchedulerConfig config_;
  const std::vector<int32_t> eos_token_ids_;
  const int32_t vocab_size_;
  const bool splits_prefills_;
  std::unordered_map<SequenceId, SequenceState> sequences_;
  std::unordered_set<SequenceId> seen_;
  std::vector<BlockState> blocks_;
  std::vector<uint64_t> slots_;   // [num_blocks, block_size]
  std::vector<uint64_t> states_;  // [num_state_slots]
  uint64_t next_step_ = 0;
  bool started_ = false;
  bool wants_drafts_ = false;
  uint64_t draws_ = 0;
  uint64_t percent_right_ = 0;  // of the drafts
  std::string error_;
};

}  // namespace atom
