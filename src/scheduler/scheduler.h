// Decides what each step computes. Pure host code, deterministic, owned by one thread.
//
// Use: add() requests; while can_schedule(), take schedule() and hand every output that is not
// empty() to the runner; give the runner's answers to postprocess() in the order of the steps. Up
// to max_steps_in_flight steps may be scheduled ahead of their answers: a sequence that samples
// gets a pending token, and the next step may already compute that token, which only the device
// knows yet.
//
// What makes running ahead sound:
//  - The device executes steps in the order in which they were scheduled. So the blocks of a
//    sequence that finished or was preempted are free at once: a step in flight may still write
//    them, but whoever is given them writes later. What it still answers for a finished sequence is
//    dropped.
//  - Within a step and a layer all KV writes come before attention reads. So the full blocks of
//    known tokens are registered in the prefix cache as soon as their step is scheduled, and
//    another sequence of the same step may already share them. Sampled tokens are registered when
//    known.
//  - Blocks behind a window are given back before a step is made: the steps in flight that read
//  them
//    come before it, and the step's own tokens do not.
//  - Copies of states are part of their step: see SequenceMemory.
//  - Length limits are known ahead: no step is scheduled past max_tokens. Other stops are found
//    when the token is known.
//  - With drafts there is one step in flight: how far it gets is known when it is done.
//  - In a pipeline, whose first stage cannot know what the last one has not sampled yet, a sequence
//    that samples waits for its token. Other sequences go on: running ones are shared out among as
//    many steps as there are stages, so that every stage has a step. With drafts likewise.
//  - When a step fails, nothing on the device can be believed: reset() drops everything.
//
// A model with recurrent states needs a slot for each running sequence; those that find none wait.
//
// Drafts. A sequence whose runner has drafts for it computes them behind its last token, as many as
// max_tokens can use. They are guests: they take up to half of the budget that decodes leave, and
// free blocks, but preempt nobody. They count as tokens only when the answer has accepted them, so
// nothing of a rejected one is ever registered; its place is written again.
//
// Order. Sequences are ranked by arrival, under kPriority by (priority, arrival). The highest ranks
// are admitted and served first; when blocks run out the lowest ranked running sequence is
// preempted: what it holds is freed, the blocks' content still cached, and it waits at its rank, in
// front of all that arrived later. It resumes only when none of its steps is in flight, and then
// recomputes its prompt and output. The highest ranked sequence can take every block and any
// request fits the pool alone, so it always progresses, and under kFcfs and kPrefillFirst every
// request finishes.
//
// kPrefillFirst neither splits nor mixes prefills. With chunked prefill off, or under
// kPrefillFirst, one prefill is split all the same: a recomputation that has outgrown the token
// budget of a step.
#pragma once

#include <array>
#include <climits>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "config/sampling_params.h"
#include "config/scheduler_config.h"
#include "scheduler/scheduler_output.h"
#include "scheduler/sequence.h"
#include "scheduler/sequence_memory.h"

namespace atom {

// What a step's answer changed for one sequence.
struct SequenceUpdate {
  SequenceId id = 0;
  std::vector<int32_t> token_ids;              // new output, a stop token included
  std::vector<TokenLogprobs> logprobs;         // one per token when asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // the next of them in order, each once
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> stop_token_id;  // only with kStop
  std::string error;                     // only with kError: what the runner said
  int32_t num_cached_prompt_tokens = 0;  // prompt tokens that need not be computed
};

struct SchedulerStats {
  int32_t num_waiting = 0;  // preempted ones included
  int32_t num_running = 0;
  int32_t num_blocks = 0;
  int32_t num_free_blocks = 0;    // cached but unreferenced blocks included
  int32_t num_cached_blocks = 0;  // blocks whose content could be shared
  int32_t num_state_slots = 0;
  int32_t num_free_state_slots = 0;  // those of checkpoints included
  int32_t num_state_checkpoints = 0;
  int64_t num_prefix_query_tokens = 0;
  int64_t num_prefix_hit_tokens = 0;
  int64_t num_preemptions = 0;
  uint64_t num_steps = 0;
  int64_t num_verifications = 0;    // of a sequence's drafts by a step
  int64_t num_draft_tokens = 0;     // that were verified
  int64_t num_accepted_tokens = 0;  // of them
  // [i]: verifications that accepted more than i drafts
  std::array<int64_t, kMaxSpeculativeTokens> num_accepted_at = {};
};

class Scheduler {
 public:
  // eos_token_ids: the model's; they end every sequence that does not set ignore_eos.
  Scheduler(const SchedulerConfig& config, std::vector<int32_t> eos_token_ids);

  // Queues a request. `sampling` is validated and its seed set. max_tokens is clipped to what
  // max_model_len leaves. An id may come again only when the earlier use of it is over. `grammar`
  // is passed on to the runner.
  Status add(SequenceId id,
             std::vector<int32_t> prompt_token_ids,
             SamplingParams sampling,
             std::shared_ptr<const CompiledGrammar> grammar = nullptr);

  // Ends a sequence; no update of it follows. False: it is unknown or has finished.
  bool abort(SequenceId id);

  bool can_schedule() const { return num_steps_in_flight_ < config_.max_steps_in_flight; }

  // The next step; needs can_schedule(). An empty() output is no step and has no answer: there is
  // nothing to do, or nothing before an answer of a step in flight.
  // A finished id is named once, if the runner ever heard of it.
  SchedulerOutput schedule();

  // Takes the answer to the oldest step in flight. Sequences without news have no update.
  std::vector<SequenceUpdate> postprocess(const SchedulerOutput& output, ModelRunnerOutput answer);

  // After a failed step: forgets all sequences, steps in flight, blocks and cached prefixes, the
  // runner having to do the same. Returns the ids of the unfinished sequences in order of arrival.
  std::vector<SequenceId> reset();

  bool has_unfinished() const { return !waiting_.empty() || !running_.empty(); }
  // Whether there is or will be a step to schedule.
  bool has_work() const { return has_unfinished() || !finished_ids_.empty(); }
  int32_t num_steps_in_flight() const { return num_steps_in_flight_; }
  SchedulerStats stats() const;

  const BlockManager& block_manager() const { return memory_.blocks(); }
  const SequenceMemory& memory() const { return memory_; }
  // Null when unknown; a finished sequence is known until its last steps are done.
  const Sequence* find(SequenceId id) const;

 private:
  struct RanksHigher {
    bool by_priority;
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  using RankedSet = std::set<Sequence*, RanksHigher>;

  enum class Phase { kMixed, kPrefill, kDecode };

  // The step being built.
  struct Step {
    SchedulerOutput output;  // decodes only until the step is complete
    std::vector<Sequence*> decodes;
    std::vector<Sequence*> prefills;
    std::vector<ScheduledSequence> prefill_entries;
    int32_t budget = 0;        // tokens left
    int32_t draft_budget = 0;  // of these, for drafts
    bool preempted = false;
  };

  // Why the first of the queue could not be admitted; while it holds, trying again is pointless.
  struct Obstacle {
    const Sequence* sequence = nullptr;
    uint64_t num_releases = 0;
    int32_t num_free = 0;  // blocks; those behind windows are no release
    int32_t min_budget = 0;
  };
  static constexpr int32_t kNeedsRelease = INT_MAX;

  Status check_request(const std::vector<int32_t>& prompt_token_ids,
                       const SamplingParams& sampling) const;

  void announce_finished(SchedulerOutput& output);
  // From the sequences that run and wait.
  void fill_step();
  void schedule_running(Phase phase);
  bool rests(const Sequence& sequence) const { return sequence.rests_until > next_step_; }
  // Nobody rests any more. False: nobody did.
  bool end_rests();
  void admit_waiting();
  bool try_admit(Sequence& sequence);
  // How many of the sequence's schedulable tokens the step made now may compute: none while it
  // rests, or while a step of its own is in another stage of a pipeline.
  int32_t num_tokens_for_step(const Sequence& sequence) const;
  bool decodes_in_step(const Sequence& sequence) const;
  // Decodes of one step at most.
  int32_t max_decodes() const;
  // How many of the next `num_tokens` of a prefill one step computes.
  int32_t chunk_of(const Sequence& sequence, int32_t num_tokens) const;
  // The running sequences are few enough for drafts.
  bool may_draft() const;
  // Drafts that the next step of a sequence can use.
  int32_t num_usable_drafts(const Sequence& sequence) const;
  // How many of them the step has tokens for, and the pool blocks.
  int32_t num_fitting_drafts(const Sequence& sequence) const;
  bool make_room(Sequence& sequence, int32_t num_tokens);
  void preempt_last();
  void commit(Sequence& sequence, int32_t num_new_tokens, int32_t num_drafts, bool starts);
  // Adds what a pipeline's stages before the last have to know of it.
  void tell_stages(Sequence& sequence, ScheduledSequence& entry) const;
  // Where drafting for it writes.
  void reserve_lookahead(Sequence& sequence, ScheduledSequence& entry);

  // Gives the sequence what was sampled for it, up to a token that ends it; drops the rest.
  FinishReason take_tokens(Sequence& sequence,
                           const ScheduledSequence& scheduled,
                           SequenceOutput& answer);
  void count_verification(int32_t num_drafts, int32_t num_accepted);
  void apply(Sequence& sequence,
             const ScheduledSequence& scheduled,
             SequenceOutput answer,
             std::vector<SequenceUpdate>& updates);
  void end(Sequence& sequence, FinishReason reason);
  void erase_if_done(Sequence& sequence);

  const SchedulerConfig config_;
  const std::vector<int32_t> eos_token_ids_;
  const bool splits_prefills_;
  SequenceMemory memory_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  RankedSet waiting_;
  std::vector<Sequence*> running_;        // highest rank first
  std::vector<SequenceId> finished_ids_;  // to be named in the next step
  // The sequences of each step in flight, in the order of its output; by step modulo size.
  std::vector<std::vector<Sequence*>> in_flight_;
  Step step_;
  Obstacle obstacle_;
  int32_t num_steps_in_flight_ = 0;
  uint64_t next_step_ = 0;
  uint64_t next_arrival_ = 0;
  SchedulerStats counted_;  // preemptions and drafts
};

}  // namespace atom
