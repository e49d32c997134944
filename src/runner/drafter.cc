#include "runner/drafter.h"

#include <algorithm>

namespace atom {
namespace {

// The last token that max_tokens allows needs no draft: a step samples one token more than it
// verifies.
int32_t num_useful_drafts(const RunnerSequence& sequence, int32_t num_tokens) {
  const auto num_left =
      static_cast<int64_t>(sequence.sampling.params().max_tokens) - sequence.num_generated();
  return static_cast<int32_t>(std::clamp<int64_t>(num_left - 1, 0, num_tokens));
}

}  // namespace

Drafter::Drafter(const ResolvedConfig& config)
    : num_tokens_(config.speculative.num_tokens),
      ngram_(config.speculative.prompt_lookup_min, config.speculative.prompt_lookup_max) {}

void Drafter::propose(const SchedulerOutput& step,
                      std::span<RunnerSequence* const> sequences,
                      ModelRunnerOutput* output) const {
  if (!step.wants_drafts) return;
  for (size_t i = 0; i < sequences.size(); ++i) {
    SequenceOutput& result = output->sequences[i];
    if (result.token_ids.empty() || !result.error.empty()) continue;
    RunnerSequence& sequence = *sequences[i];
    const int32_t count = num_useful_drafts(sequence, num_tokens_);
    if (count > 0) sequence.drafts = ngram_.propose(sequence.token_ids, count);
    result.num_drafts = static_cast<int32_t>(sequence.drafts.size());
  }
}

}  // namespace atom
