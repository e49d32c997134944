#include "runner/head_rows.h"

#include <algorithm>

namespace atom {

std::vector<HeadRow> select_head_rows(const SchedulerOutput& step,
                                      std::span<RunnerSequence* const> sequences) {
  std::vector<HeadRow> sampled;
  std::vector<HeadRow> rows;
  int32_t row = 0;
  for (size_t s = 0; s < step.scheduled.size(); ++s) {
    const ScheduledSequence& scheduled = step.scheduled[s];
    const RunnerSequence& sequence = *sequences[s];
    if (sequence.sampling.params().prompt_logprobs) {
      const int32_t end = std::min(scheduled.num_computed_tokens + scheduled.num_new_tokens,
                                   sequence.num_prompt_tokens - 1);
      for (int32_t position = scheduled.num_computed_tokens; position < end; ++position) {
        const int32_t hidden_row = row + position - scheduled.num_computed_tokens;
        rows.push_back({s, hidden_row, sequence.token_ids[position + 1]});
      }
    }
    row += scheduled.num_new_tokens;
    for (int32_t i = scheduled.num_sampled; i > 0; --i) sampled.push_back({s, row - i});
  }
  rows.insert(rows.end(), sampled.begin(), sampled.end());
  return rows;
}

size_t count_scored(std::span<const HeadRow> rows) {
  const auto first_sampled =
      std::ranges::find_if(rows, [](const HeadRow& row) { return row.scored_token < 0; });
  return static_cast<size_t>(first_sampled - rows.begin());
}

}  // namespace atom
