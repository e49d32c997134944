#include "sampling/logit_edits.h"

#include <algorithm>
#include <limits>

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

}  // namespace

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
  for (int32_t id : state.forbidden_token_ids()) logits[id] = kMasked;
  for (int32_t id : state.completing_token_ids()) logits[id] = kMasked;
  for (const auto& [id, bias] : state.params().logit_bias) logits[id] += bias;
  apply_penalties(state, logits);
}

}  // namespace atom
