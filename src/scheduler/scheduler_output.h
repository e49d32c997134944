// What one step computes: the Scheduler's whole word to a ModelRunner, and the runner's answer.
// Plain host data: no pointers into the scheduler, so it may be passed by reference to runner
// threads or sent to another process. A runner keeps its own state per sequence (tokens, block
// table, sampling state) and these are the changes to it, in step order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/sampling_params.h"
#include "config/token_logprobs.h"

namespace atom {

class CompiledGrammar;  // structured_output/; nothing here looks into it

using SequenceId = uint64_t;

// First appearance of a sequence: everything a runner must know of it.
struct NewSequence {
  SequenceId id = 0;
  std::vector<int32_t> prompt_token_ids;
  SamplingParams sampling;                              // seed always set
  std::shared_ptr<const CompiledGrammar> grammar = {};  // that its answer follows; null: none
};

// A sequence's part of a step: its tokens [num_computed_tokens, num_computed_tokens +
// num_new_tokens). Tokens beyond the prompt are the ones the runner itself sampled; the scheduler
// may not have seen the last of them yet. The last ones may be drafts that the runner proposed:
// guesses of what it would sample, which this step verifies.
struct ScheduledSequence {
  SequenceId id = 0;
  int32_t num_computed_tokens = 0;  // tokens whose KV is in the cache before this step
  int32_t num_new_tokens = 0;       // >= 1
  bool reset_block_table = false;   // true at first scheduling and after preemption
  // Appended to the block table (after the reset, if any): for each block of tokens one of each
  // group of layers (SchedulerConfig::num_kv_groups). -1: no query from now on sees any of it.
  // Blocks that queries do not see any more stand in the runner's tables until the next reset.
  std::vector<int32_t> new_block_ids;
  // With reset_block_table: the slots of its states from now on, 1 + num_speculative_tokens of
  // them, its state being in the first; none for a model without states.
  std::vector<int32_t> state_slots;
  // The logits of so many of its last tokens are sampled. 0: none, else all but the first of these
  // tokens are drafts. What is sampled behind a draft counts only if the draft was sampled, too.
  int32_t num_sampled = 0;
  // A pipeline's last stage alone samples and drafts; the other stages learn from here what it
  // has sampled since they were last told, and the drafts of this step.
  std::vector<int32_t> told_token_ids = {};
  std::vector<int32_t> told_drafts = {};

  bool samples() const { return num_sampled > 0; }
  int32_t num_drafts() const { return num_sampled > 1 ? num_sampled - 1 : 0; }
  // It computes the one token that has not been, and drafts behind it.
  bool is_decode() const { return samples() && num_new_tokens == num_sampled; }
};

// Copies the states in one slot into another.
struct StateCopy {
  int32_t from = 0;
  int32_t to = 0;
};

struct SchedulerOutput {
  uint64_t step = 0;
  std::vector<NewSequence> new_sequences;
  // Decodes (is_decode()) first, then prefill chunks.
  std::vector<ScheduledSequence> scheduled;
  // In this order: the restores, one after the other, then the step, then the saves.
  std::vector<StateCopy> state_restores;
  std::vector<StateCopy> state_saves;
  std::vector<SequenceId> finished;  // never scheduled again: drop their state before this step
  int32_t num_tokens = 0;            // sum of num_new_tokens
  bool wants_drafts = false;         // for the next step, of sequences that sample
  // Nothing is scheduled, and yet the runner computes: a token that counts nowhere, because others
  // need the experts of this rank. Never set by a Scheduler.
  bool is_dummy = false;
  // Where copies share experts: all of them compute single tokens only, behind at most
  // so many sequences, so that they may take a recorded step of that size. 0: it is more. Never set
  // by a Scheduler.
  int32_t shared_batch = 0;

  bool empty() const { return scheduled.empty() && finished.empty(); }
};

struct SequenceOutput {
  SequenceId id = 0;
  // Sampled by this step, up to num_sampled: accepted drafts, then the token behind the last of
  // them. Empty for an unfinished prefill.
  std::vector<int32_t> token_ids;
  int32_t num_drafts = 0;               // that the runner proposes for the sequence's next step
  std::vector<int32_t> draft_ids = {};  // these drafts; read only where there are several stages
  std::vector<TokenLogprobs> logprobs;  // one per token when asked for, else empty
  // One for each prompt token whose logits this step computed, in order; the first token has
  // none. Empty unless asked for.
  std::vector<TokenLogprobs> prompt_logprobs;
  // Not empty: the sequence's logits admit no choice and it ends with this error.
  std::string error;
  // States that its grammar's parser has looked at for these tokens (structured_output/).
  int64_t grammar_work = 0;
  // It has no part in so many of the next steps, as long as others have.
  uint64_t num_steps_to_rest = 0;
};

struct ModelRunnerOutput {
  uint64_t step = 0;
  std::vector<SequenceOutput> sequences;  // same order as SchedulerOutput::scheduled
};

}  // namespace atom
