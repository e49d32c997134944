#include "runner/draft_rows.h"

#include <algorithm>

#include "runner/decode_graphs.h"

namespace atom {
namespace {

bool reads_history(const SamplingParams& params) {
  return params.has_penalties() || params.needs_known_tokens();
}

}  // namespace

std::vector<DeviceSamplingRow> rows_behind_drafts(const SchedulerOutput& step,
                                                  std::span<RunnerSequence* const> sequences,
                                                  SupposedStates* supposed) {
  std::vector<DeviceSamplingRow> rows;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const RunnerSequence& sequence = *sequences[s];
    const SamplingState* state = &sequence.sampling;
    const uint32_t first = sequence.num_generated();
    for (int32_t i = 0; i < step.scheduled[s].num_sampled; ++i) {
      if (i > 0 && reads_history(state->params())) {
        SamplingState& behind = supposed->emplace_back(*state);
        behind.append(sequence.drafts[static_cast<size_t>(i) - 1]);
        state = &behind;
      }
      rows.push_back({state, first + static_cast<uint32_t>(i), /*pending_row=*/-1});
    }
  }
  return rows;
}

int64_t num_states_of(const DraftModel& draft) {
  return std::max<int64_t>(1, std::ssize(draft.aux_layers()));
}

Shape draft_states_shape(const ResolvedConfig& config, const DraftModel& draft) {
  int64_t num_tokens = 0;
  for (const DecodeShape& shape : DecodeGraphs::shapes(config)) {
    num_tokens = std::max(num_tokens, shape.num_tokens());
  }
  return {num_tokens * num_states_of(draft), config.model.hidden_size};
}

Tensor aux_hidden_of(const ResolvedConfig& config,
                     int64_t num_aux_layers,
                     int64_t num_tokens,
                     Workspace& workspace) {
  if (num_aux_layers == 0) return {};
  return workspace.tensor({num_tokens * num_aux_layers, config.model.hidden_size}, config.dtype);
}

}  // namespace atom
