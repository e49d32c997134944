// min_p, top_k and top_p. Each keeps a prefix of the tokens in rank order (logit, then lower id),
// so all of them together come down to one cut. As in vLLM they act in this order, each on what the
// one before left, on probabilities after the temperature:
//   min_p   keep p >= min_p * largest p
//   top_k   keep the k best (exactly k; vLLM keeps all that tie with the k-th)
//   top_p   keep the fewest best whose share of the remaining mass is at least top_p; one at least
#pragma once

#include <cstdint>
#include <limits>

#include "config/sampling_params.h"
#include "sampling/logits_row.h"

namespace atom {

// Kept: logit > cut.logit, or logit == cut.logit and id <= cut.token_id. By default all.
struct Cut {
  float logit = -std::numeric_limits<float>::infinity();
  int32_t token_id = std::numeric_limits<int32_t>::max();
};

// The row has no fault; the temperature is not 0.
Cut choose_cut(const LogitsRow& row, const SamplingParams& params, RowScratch& scratch);

}  // namespace atom
