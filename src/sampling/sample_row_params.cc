#include "sampling/sample_row_params.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/sampler.h"

namespace atom {
namespace {

static_assert(sizeof(LogitEdit) == 16);
static_assert(sizeof(SampleRowParams) == 64);
static_assert(kMaxRowLogprobs == SamplingParams::kMaxLogprobs);

constexpr float kMasked = -std::numeric_limits<float>::infinity();

bool has_pending_edit(const DeviceSamplingRow& row) {
  return row.pending_row >= 0 && row.state->params().has_penalties();
}

bool has_forced_token(const DeviceSamplingRow& row) {
  return row.state->forced_token() != ThinkingBudget::kAnyToken;
}

std::span<const int32_t> forbidden_ids(const DeviceSamplingRow& row) {
  return forbidden_token_ids(*row.state, row.allowed, row.position);
}

bool has_edits(const DeviceSamplingRow& row) {
  return has_pending_edit(row) || !forbidden_ids(row).empty() ||
         !row.state->completing_token_ids().empty() || has_forced_token(row) ||
         !row.state->params().logit_bias.empty() || !row.state->seen_tokens().empty();
}

bool by_token(const LogitEdit& a, const LogitEdit& b) {
  return a.token_id < b.token_id;
}

// Forbidden and biased tokens, each once, in order of their ids.
void append_masks(const DeviceSamplingRow& row, std::vector<LogitEdit>* edits) {
  const size_t begin = edits->size();
  for (const int32_t id : forbidden_ids(row)) {
    edits->push_back({.token_id = id, .bias = kMasked});
  }
  for (const int32_t id : row.state->completing_token_ids()) {
    edits->push_back({.token_id = id, .bias = kMasked});
  }
  for (const auto& [id, bias] : row.state->params().logit_bias) {
    edits->push_back({.token_id = id, .bias = bias});
  }
  std::stable_sort(edits->begin() + static_cast<std::ptrdiff_t>(begin), edits->end(), by_token);
  size_t end = begin;
  for (size_t i = begin; i < edits->size(); ++i) {
    const LogitEdit edit = (*edits)[i];
    if (end > begin && (*edits)[end - 1].token_id == edit.token_id) {
      (*edits)[end - 1].bias += edit.bias;
    } else {
      (*edits)[end++] = edit;
    }
  }
  edits->resize(end);
}

void append_penalties(const DeviceSamplingRow& row,
                      size_t first_mask,
                      std::vector<LogitEdit>* edits) {
  const size_t num_masks = edits->size() - first_mask;
  for (const SamplingState::SeenToken& seen : row.state->seen_tokens()) {
    LogitEdit edit{.token_id = seen.token_id, .num_generated = seen.num_generated};
    if (num_masks > 0) {
      const auto begin = edits->begin() + static_cast<std::ptrdiff_t>(first_mask);
      const auto end = begin + static_cast<std::ptrdiff_t>(num_masks);
      const auto mask = std::lower_bound(begin, end, edit, by_token);
      if (mask != end && mask->token_id == edit.token_id) {
        mask->num_generated = edit.num_generated;
        continue;
      }
    }
    edits->push_back(edit);
  }
}

}  // namespace

bool has_mask(const DeviceSamplingRow& row) {
  return row.allowed != nullptr && !has_forced_token(row);
}

bool takes_largest_logit(const DeviceSamplingRow& row) {
  const SamplingParams& params = row.state->params();
  return params.temperature < kGreedyTemperature && !params.logprobs && row.allowed == nullptr &&
         !has_edits(row);
}

SampleRowParams sample_row_params(const DeviceSamplingRow& row, std::vector<LogitEdit>* edits) {
  const SamplingParams& params = row.state->params();
  SampleRowParams result;
  result.seed = *params.seed;
  result.position = row.position;
  result.vocab_size = static_cast<int32_t>(row.state->vocab_size());
  result.temperature = params.temperature;
  result.inverse_temperature = 1.0f / params.temperature;
  result.min_p_offset = params.min_p > 0.0f ? params.temperature * std::log(params.min_p) : kMasked;
  result.top_p = params.top_p;
  result.top_k = std::max(0, params.top_k);
  result.repetition_penalty = params.repetition_penalty;
  result.frequency_penalty = params.frequency_penalty;
  result.presence_penalty = params.presence_penalty;
  result.num_logprobs = params.logprobs.value_or(-1);
  const size_t first = edits->size();
  result.first_edit = static_cast<int32_t>(first);
  if (has_forced_token(row)) {
    edits->push_back({.token_id = row.state->forced_token(), .bias = kForcedLogit});
  } else if (has_edits(row)) {
    append_masks(row, edits);
    append_penalties(row, first, edits);
    if (has_pending_edit(row)) edits->push_back({.token_id = ~row.pending_row});
  }
  result.num_edits = static_cast<int32_t>(edits->size() - first);
  return result;
}

int64_t max_row_edits(int64_t vocab_size) {
  return vocab_size + 1;
}

}  // namespace atom
