#include "runner/drafter.h"

#include <algorithm>
#include <utility>

namespace atom {
namespace {

// The last token that max_tokens allows needs no draft: a step samples one token more than it
// verifies.
int32_t num_useful_drafts(const RunnerSequence& sequence, int32_t num_tokens) {
  const auto num_left =
      static_cast<int64_t>(sequence.sampling.params().max_tokens) - sequence.num_generated();
  return static_cast<int32_t>(std::clamp<int64_t>(num_left - 1, 0, num_tokens));
}

int32_t num_wanted(const SchedulerOutput& step,
                   const RunnerSequence& sequence,
                   const SequenceOutput& result,
                   int32_t num_tokens) {
  const bool goes_on = !result.token_ids.empty() && result.error.empty();
  return step.wants_drafts && goes_on ? num_useful_drafts(sequence, num_tokens) : 0;
}

// The sequence's part of the step for a draft model; its rows begin at `first_row`.
DraftRequest request_of(const ScheduledSequence& scheduled,
                        const RunnerSequence& sequence,
                        int32_t first_row) {
  DraftRequest request{.token_ids = sequence.token_ids, .block_ids = sequence.block_ids};
  request.first_position = scheduled.num_computed_tokens;
  request.first_row = first_row;
  request.num_settled = scheduled.reset_block_table ? 0 : scheduled.num_computed_tokens;
  request.num_rows = scheduled.num_new_tokens;
  if (scheduled.num_drafts() > 0) {
    // Up to the last draft that was accepted: its row chose the last token.
    const auto num_tokens = static_cast<int32_t>(sequence.token_ids.size());
    request.num_rows = num_tokens - 1 - scheduled.num_computed_tokens;
  }
  return request;
}

}  // namespace

Drafter::Drafter(const ResolvedConfig& config,
                 const ParallelContext& parallel,
                 const DraftModel* model,
                 int64_t num_sampled_ids,
                 const Stream& stream)
    : num_tokens_(config.speculative.num_tokens),
      largest_batch_(config.scheduler.largest_drafting_batch()),
      ngram_(config.speculative.prompt_lookup_min, config.speculative.prompt_lookup_max) {
  if (model == nullptr) return;
  eagle_.emplace(*model, config.scheduler, parallel, num_sampled_ids, stream);
}

Status Drafter::record(const DecodeShape& shape,
                       const Tensor& hidden,
                       const ForwardContext& context) {
  if (!eagle_) return {};
  const int32_t num_drafts = shape.batch <= largest_batch_ ? num_tokens_ : 0;
  return eagle_->record({shape.batch, shape.queries, num_drafts}, hidden, context);
}

void Drafter::propose(const SchedulerOutput& step,
                      std::span<RunnerSequence* const> sequences,
                      const Tensor& hidden,
                      const ForwardContext& context,
                      const DecodeShape* recorded,
                      ModelRunnerOutput* output) {
  std::vector<DraftRequest> requests;
  std::vector<std::vector<int32_t>> drafts;
  int32_t row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int32_t count = num_wanted(step, *sequences[i], output->sequences[i], num_tokens_);
    if (eagle_) {
      requests.push_back(request_of(step.scheduled[i], *sequences[i], row));
      requests.back().num_drafts = count;
      row += step.scheduled[i].num_new_tokens;
    } else {
      drafts.push_back(ngram_.propose(sequences[i]->token_ids, count));
    }
  }
  if (eagle_) {
    const PaddedDraftShape* shape =
        recorded == nullptr ? nullptr : eagle_->recorded(recorded->batch, recorded->queries);
    drafts = shape == nullptr ? eagle_->propose(requests, hidden, context)
                              : eagle_->propose_recorded(*shape, requests, hidden, context);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    output->sequences[i].num_drafts = static_cast<int32_t>(drafts[i].size());
    output->sequences[i].draft_ids = drafts[i];
    sequences[i]->drafts = std::move(drafts[i]);
  }
}

void Drafter::propose_nothing(const Tensor& hidden, const ForwardContext& context) {
  (void)eagle_->propose({}, hidden, context);
}

}  // namespace atom
