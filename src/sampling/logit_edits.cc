#include "sampling/logit_edits.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace atom {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void mask_to_allowed(TokenBitmask allowed, int64_t vocab_size, float* logits) {
  for (int64_t begin = 0; begin < vocab_size; begin += 32) {
    const uint32_t word = allowed[begin / 32];
    if (word == ~0u) continue;
    const int64_t count = std::min<int64_t>(32, vocab_size - begin);
    for (int64_t i = 0; i < count; ++i) {
      if ((word >> i & 1u) == 0) logits[begin + i] = kMasked;
    }
  }
}

void apply_penalties(const SamplingState& state, float* logits) {
  const SamplingParams& params = state.params();
  for (const SamplingState::SeenToken& seen : state.seen_tokens()) {
    float x = logits[seen.token_id];
    x = x > 0.0f ? x / params.repetition_penalty : x * params.repetition_penalty;
    if (seen.num_generated > 0) {
      x -= params.frequency_penalty * static_cast<float>(seen.num_generated);
      x -= params.presence_penalty;
    }
    logits[seen.token_id] = x;
  }
}

// Whether a token may come that is none of `forbidden`.
bool leaves_any(TokenBitmask allowed, std::span<const int32_t> forbidden, int64_t vocab_size) {
  std::vector<uint32_t> words(allowed, allowed + (vocab_size + 31) / 32);
  if (vocab_size % 32 != 0) words.back() &= (1u << (vocab_size % 32)) - 1;
  for (const int32_t id : forbidden) words[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
  return std::ranges::any_of(words, [](uint32_t word) { return word != 0; });
}

}  // namespace

std::span<const int32_t> forbidden_token_ids(const SamplingState& state,
                                             TokenBitmask allowed,
                                             uint32_t position) {
  const std::span<const int32_t> forbidden = state.forbidden_token_ids(position);
  const std::span<const int32_t> always = state.forbidden_token_ids(UINT32_MAX);
  if (allowed == nullptr || forbidden.size() == always.size()) return forbidden;
  return leaves_any(allowed, forbidden, state.vocab_size()) ? forbidden : always;
}

bool has_logit_edits(const SamplingState& state, TokenBitmask allowed) {
  return allowed != nullptr || !state.forbidden_token_ids().empty() ||
         !state.completing_token_ids().empty() ||
         state.forced_token() != ThinkingBudget::kAnyToken || !state.params().logit_bias.empty() ||
         !state.seen_tokens().empty();
}

void edit_logits(const SamplingState& state, TokenBitmask allowed, float* logits) {
  if (const int32_t forced = state.forced_token(); forced != ThinkingBudget::kAnyToken) {
    logits[forced] = kForcedLogit;
    return;
  }
  if (allowed != nullptr) mask_to_allowed(allowed, state.vocab_size(), logits);
  for (int32_t id : forbidden_token_ids(state, allowed, state.num_generated())) {
    logits[id] = kMasked;
  }
  for (int32_t id : state.completing_token_ids()) logits[id] = kMasked;
  for (const auto& [id, bias] : state.params().logit_bias) logits[id] += bias;
  apply_penalties(state, logits);
}

}  // namespace atom
