#include "sampling/sampling_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace atom {

SamplingState::SamplingState(const SamplingParams& params,
                             std::span<const int32_t> prompt_token_ids,
                             std::span<const int32_t> eos_token_ids,
                             int64_t vocab_size)
    : params_(params),
      vocab_size_(vocab_size),
      bad_words_(params.bad_word_ids, vocab_size),
      thinking_(params) {
  CHECK(vocab_size > 0);
  CHECK(params.seed.has_value());
  std::erase_if(params_.logit_bias, [&](const auto& bias) { return !in_vocabulary(bias.first); });
  forbid_all_but_allowed();
  forbid(bad_words_.always());
  if (params_.min_tokens > 0) forbid_ends(eos_token_ids);
  // Presence and frequency concern generated tokens only.
  if (params_.repetition_penalty != 1.0f) {
    for (int32_t id : prompt_token_ids) {
      if (in_vocabulary(id)) seen(id);
    }
  }
}

void SamplingState::forbid_all_but_allowed() {
  if (params_.allowed_token_ids.empty()) return;
  std::vector<bool> is_allowed(static_cast<size_t>(vocab_size_));
  for (const int32_t id : params_.allowed_token_ids) {
    if (in_vocabulary(id)) is_allowed[static_cast<size_t>(id)] = true;
  }
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (!is_allowed[static_cast<size_t>(id)]) forbidden_.push_back(id);
  }
}

void SamplingState::forbid(std::span<const int32_t> token_ids) {
  std::vector<int32_t> all;
  std::ranges::set_union(forbidden_, token_ids, std::back_inserter(all));
  forbidden_ = std::move(all);
}

void SamplingState::forbid_ends(std::span<const int32_t> eos_token_ids) {
  forbidden_at_first_ = params_.stop_token_ids;
  if (!params_.ignore_eos) {
    forbidden_at_first_.insert(
        forbidden_at_first_.end(), eos_token_ids.begin(), eos_token_ids.end());
  }
  std::erase_if(forbidden_at_first_, [&](int32_t id) {
    return !in_vocabulary(id) || std::ranges::binary_search(forbidden_, id);
  });
  forbidden_at_first_.insert(forbidden_at_first_.end(), forbidden_.begin(), forbidden_.end());
}

void SamplingState::append(int32_t token_id) {
  ++num_generated_;
  bad_words_.append(token_id);
  thinking_.append(token_id);
  if (params_.has_penalties() && in_vocabulary(token_id)) ++seen(token_id).num_generated;
}

SamplingState::SeenToken& SamplingState::seen(int32_t token_id) {
  const auto [entry, added] =
      seen_index_.try_emplace(token_id, static_cast<uint32_t>(seen_.size()));
  if (added) seen_.push_back({token_id, 0});
  return seen_[entry->second];
}

}  // namespace atom
