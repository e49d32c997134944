// Log-probabilities of a row as a client sees them: the log-softmax of the raw logits, before
// biases, penalties, temperature and filters (vLLM's raw_logprobs).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "config/token_logprobs.h"
#include "sampling/logits_row.h"

namespace atom {

// The chosen token first, then the k best in rank order. A token's rank is one more than the number
// of tokens with a larger logit. `row` has no fault.
TokenLogprobs row_logprobs(const LogitsRow& row,
                           int32_t chosen_token_id,
                           int32_t k,
                           RowScratch& scratch);

// The same for a row not yet looked at, [vocab_size]; an error when it has NaN or +inf or nothing
// but -inf.
Result<TokenLogprobs> row_logprobs(const float* logits,
                                   int64_t vocab_size,
                                   int32_t chosen_token_id,
                                   int32_t k,
                                   RowScratch& scratch);

// What a row with this fault is refused with.
Status row_status(RowFault fault);

}  // namespace atom
