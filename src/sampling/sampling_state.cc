#include "sampling/sampling_state.h"

#include <algorithm>

namespace atom {

SamplingState::SamplingState(const SamplingParams& params,
                             std::span<const int32_t> prompt_token_ids,
                             std::span<const int32_t> eos_token_ids,
                             int64_t vocab_size)
    : params_(params), vocab_size_(vocab_size) {
  CHECK(vocab_size > 0);
  CHECK(params.seed.has_value());
  std::erase_if(params_.logit_bias, [&](const auto& bias) { return !in_vocabulary(bias.first); });
  if (params_.min_tokens > 0) {
    end_token_ids_ = params_.stop_token_ids;
    if (!params_.ignore_eos) {
      end_token_ids_.insert(end_token_ids_.end(), eos_token_ids.begin(), eos_token_ids.end());
    }
    std::erase_if(end_token_ids_, [&](int32_t id) { return !in_vocabulary(id); });
  }
  // Presence and frequency concern generated tokens only.
  if (params_.repetition_penalty != 1.0f) {
    for (int32_t id : prompt_token_ids) {
      if (in_vocabulary(id)) seen(id);
    }
  }
}

void SamplingState::append(int32_t token_id) {
  ++num_generated_;
  if (params_.has_penalties() && in_vocabulary(token_id)) ++seen(token_id).num_generated;
}

SamplingState::SeenToken& SamplingState::seen(int32_t token_id) {
  const auto [entry, added] =
      seen_index_.try_emplace(token_id, static_cast<uint32_t>(seen_.size()));
  if (added) seen_.push_back({token_id, 0});
  return seen_[entry->second];
}

}  // namespace atom
