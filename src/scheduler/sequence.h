// One sequence being generated, as the Scheduler sees it: its tokens, how far it is scheduled, what
// it holds on the device.
//
// The Scheduler runs ahead of the device, so there are two ends. Known tokens are the prompt and
// the sampled tokens whose values have come back. Pending tokens are sampled by steps in flight:
// they have a position and may be scheduled, but no value here yet. num_computed_tokens() counts
// what is scheduled, whether or not the step has run; drafts only once they are accepted.
//   num_tokens() == num_known_tokens() + num_pending_tokens() >= num_computed_tokens()
//
// Owned by the thread that runs the Scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "config/sampling_params.h"
#include "scheduler/checkpoint_places.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/scheduler_output.h"

namespace atom {

enum class SequenceState {
  kWaiting,    // never scheduled
  kRunning,    // holds blocks, and a state slot if the model has states
  kPreempted,  // waiting again, what it held taken; keeps its tokens
  kFinished,   // holds nothing; kept until its steps in flight are done and the runner is told
};

enum class FinishReason { kNone, kStop, kLength, kAbort, kError };

// A sequence's KV blocks; written by the BlockManager only.
struct BlockTable {
  // [blocks of tokens, groups of layers]; -1: given back, or never needed, behind the window.
  std::vector<int32_t> block_ids;
  int32_t num_behind = 0;             // leading blocks of tokens that the last group does not hold
  int32_t num_registered = 0;         // leading blocks whose content is in the prefix cache
  ContentId content = kRootContent;   // of the last of them
  std::vector<BlockHash> hash_chain;  // of the leading full blocks of known tokens; outlives a free
};

// A checkpoint that a step saves of a sequence, whose last tokens may not be known yet.
struct PendingCheckpoint {
  int32_t slot = 0;
  int32_t num_tokens = 0;   // behind which it is the state
  bool is_passing = false;  // goes when the sequence saves the next
};

// A sequence's state slots; written by the SequenceMemory only.
struct RecurrentState {
  // None in a model without states. The state is in the first wherever a step ends without drafts.
  std::vector<int32_t> slots;
  std::vector<PendingCheckpoint> checkpoints;
  CheckpointPlaces::OfPrompt places;
  ContentId passing = kRootContent;  // whose checkpoint goes when the next is saved
};

class Sequence {
 public:
  // Preconditions, which Scheduler::add() establishes: a prompt that is not empty, max_tokens that
  // fits the model.
  Sequence(SequenceId id,
           uint64_t arrival,
           std::vector<int32_t> prompt_token_ids,
           SamplingParams sampling,
           std::span<const int32_t> eos_token_ids);

  SequenceId id() const { return id_; }
  uint64_t arrival() const { return arrival_; }
  const SamplingParams& sampling() const { return sampling_; }
  const CacheSalt& cache_salt() const { return cache_salt_; }

  // Prompt, then known output.
  std::span<const int32_t> token_ids() const { return token_ids_; }
  std::span<const int32_t> prompt_token_ids() const {
    return {token_ids_.data(), static_cast<size_t>(num_prompt_tokens_)};
  }
  int32_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int32_t num_known_tokens() const { return static_cast<int32_t>(token_ids_.size()); }
  int32_t num_output_tokens() const { return num_known_tokens() - num_prompt_tokens_; }
  int32_t num_pending_tokens() const { return num_pending_tokens_; }
  int32_t num_tokens() const { return num_known_tokens() + num_pending_tokens_; }
  int32_t num_computed_tokens() const { return num_computed_tokens_; }
  int32_t num_steps_in_flight() const { return num_steps_in_flight_; }

  // Tokens the next step may compute; 0 when the last token is already under way, or when what may
  // follow it depends on its value, which is not known yet.
  int32_t num_schedulable_tokens() const;
  bool next_is_decode() const { return sampling_.max_tokens > 0 && num_schedulable_tokens() == 1; }

  // Computation starts, or after a preemption starts again, behind `num_cached_tokens`.
  void start(int32_t num_cached_tokens);
  // A step of the next `num_new_tokens` was scheduled. True: it reaches the end and samples.
  bool advance(int32_t num_new_tokens);
  // What it held was taken away: nothing is computed any more.
  void preempt();
  // The oldest step in flight is done.
  void complete_step();
  // The value of the oldest pending token.
  void append_token(int32_t token_id);
  // Behind it: the value of a token whose place before it is a draft's, which was accepted.
  void append_behind_draft(int32_t token_id);
  // What the last known token, an output token, means for the sequence.
  FinishReason check_finish() const;
  void finish(FinishReason reason);

  SequenceState state() const { return state_; }
  FinishReason finish_reason() const { return finish_reason_; }
  // The token that ended the sequence; only with kStop.
  std::optional<int32_t> stop_token_id() const;

  std::shared_ptr<const CompiledGrammar> grammar;  // for the runner
  BlockTable block_table;
  RecurrentState recurrent;
  int32_t num_cached_prompt_tokens = 0;  // taken from the prefix cache at the first scheduling
  int32_t num_scored_prompt_tokens = 0;  // prompt tokens whose logprobs were passed on
  int32_t num_drafts = 0;                // that the runner has of what follows the known tokens
  std::vector<int32_t> draft_ids;        // of a pipeline: these
  int32_t num_told_tokens;               // of a pipeline: known to all of its stages
  bool known_to_runner = false;
  uint64_t rests_until = 0;  // a step

 private:
  const SequenceId id_;
  const uint64_t arrival_;
  const int32_t num_prompt_tokens_;
  const SamplingParams sampling_;
  const CacheSalt cache_salt_;
  std::vector<int32_t> end_token_ids_;  // sorted
  std::vector<int32_t> token_ids_;
  int32_t num_pending_tokens_ = 0;
  int32_t num_computed_tokens_ = 0;
  int32_t num_steps_in_flight_ = 0;
  SequenceState state_ = SequenceState::kWaiting;
  FinishReason finish_reason_ = FinishReason::kNone;
};

}  // namespace atom
