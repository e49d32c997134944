#include "runner/sequence_table.h"

#include <utility>

#include "base/check.h"

namespace atom {
namespace {

// What the last stage of the pipeline has sampled of it, by the one step since it was told, and has
// drafted.
void take_told(const ScheduledSequence& scheduled, RunnerSequence* sequence) {
  const std::vector<int32_t>& told = scheduled.told_token_ids;
  sequence->token_ids.insert(sequence->token_ids.end(), told.begin(), told.end());
  sequence->drafts = scheduled.told_drafts;
  if (!told.empty() && !sequence->state_slots.empty()) sequence->state_index = told.size() - 1;
}

}  // namespace

SequenceTable::SequenceTable(std::vector<int32_t> eos_token_ids,
                             int64_t num_sampled_ids,
                             bool samples,
                             int32_t num_kv_groups)
    : eos_token_ids_(std::move(eos_token_ids)),
      num_sampled_ids_(num_sampled_ids),
      samples_(samples),
      num_kv_groups_(num_kv_groups) {}

void SequenceTable::update(const SchedulerOutput& step) {
  for (const SequenceId id : step.finished) sequences_.erase(id);
  for (const NewSequence& added : step.new_sequences) {
    RunnerSequence sequence{
        .token_ids = added.prompt_token_ids,
        .num_prompt_tokens = static_cast<int32_t>(added.prompt_token_ids.size()),
        .sampling = SamplingState(
            added.sampling, added.prompt_token_ids, eos_token_ids_, num_sampled_ids_)};
    if (added.grammar != nullptr) {
      const SamplingParams& sampling = added.sampling;
      ReasoningMarks marks;
      if (sampling.thinks_before_tag) {
        marks = {.begin = sampling.thinking_begin_ids,
                 .end = sampling.thinking_end_ids,
                 .has_begun = sampling.starts_thinking};
      }
      sequence.grammar.emplace(added.grammar, std::move(marks));
    }
    CHECK(sequences_.emplace(added.id, std::move(sequence)).second);
  }
  scheduled_.clear();
  for (const ScheduledSequence& scheduled : step.scheduled) {
    RunnerSequence* sequence = find(scheduled.id);
    CHECK(sequence != nullptr);
    if (!samples_) take_told(scheduled, sequence);
    if (scheduled.reset_block_table) {
      sequence->drop_blocks();
      sequence->state_slots = scheduled.state_slots;
      sequence->state_index = 0;
    }
    sequence->add_blocks(scheduled.new_block_ids, num_kv_groups_);
    scheduled_.push_back(sequence);
  }
}

RunnerSequence* SequenceTable::find(SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

}  // namespace atom
