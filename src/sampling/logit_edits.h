// Changes to a row of logits before it is looked at: which tokens may come at all, biases and
// penalties. They are sparse, so a row costs what its sequence has seen, not the vocabulary. Order
// and formulas follow vLLM:
//   allowed tokens   others become -inf
//   min_tokens       end tokens become -inf, but where the allowed tokens leave nothing else
//   bad_words        tokens that would complete one become -inf
//   logit_bias       x += bias
//   repetition       x = x > 0 ? x / penalty : x * penalty    tokens of prompt and answer
//   frequency        x -= penalty * count                     tokens of the answer
//   presence         x -= penalty                             tokens of the answer
// A token that has to come (the end of reasoning that has used up its budget) becomes kForcedLogit
// instead of all that.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/sampling_state.h"

namespace atom {

// Bit id % 32 of word id / 32 is set when the token may come; ceil(vocab_size / 32) words. Null
// allows every token.
using TokenBitmask = const uint32_t*;

// Beyond any logit, and finite after every penalty and temperature.
constexpr float kForcedLogit = 1e20f;

// The tokens that may not come at `position`, by the state and by which tokens are allowed.
std::span<const int32_t> forbidden_token_ids(const SamplingState& state,
                                             TokenBitmask allowed,
                                             uint32_t position);

bool has_logit_edits(const SamplingState& state, TokenBitmask allowed);

// logits: [state.vocab_size()], changed in place.
void edit_logits(const SamplingState& state, TokenBitmask allowed, float* logits);

}  // namespace atom
