#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "sampling/row_kernels.h"

namespace atom {

Status row_status(RowFault fault) {
  switch (fault) {
    case RowFault::kNone:
      return {};
    case RowFault::kNotANumber:
      return internal_error("the model's logits contain NaN or +inf; no token can be chosen");
    case RowFault::kNoCandidate:
      return internal_error("every token is masked or has logit -inf; no token can be chosen");
  }
  check_failed("a known RowFault", std::to_string(static_cast<int>(fault)), __FILE__, __LINE__);
}

TokenLogprobs row_logprobs(const LogitsRow& row,
                           int32_t chosen_token_id,
                           int32_t k,
                           RowScratch& scratch) {
  CHECK(chosen_token_id >= 0);
  CHECK(chosen_token_id < row.vocab_size);
  const RowKernels& kernels = row_kernels();
  const double log_total = std::log(
      kernels.exp_sum(row.logits, row.vocab_size, row.block_max, row.max, 1.0f, kLowestLogit));
  const auto logprob = [&](float logit) {
    return static_cast<float>(double{logit} - double{row.max} - log_total);
  };

  TokenLogprobs result;
  result.reserve(static_cast<size_t>(k) + 1);
  const float chosen = row.logits[chosen_token_id];
  const int64_t num_better =
      kernels.count_greater(row.logits, row.vocab_size, row.block_max, chosen);
  result.push_back({chosen_token_id, logprob(chosen), static_cast<int32_t>(num_better + 1)});
  if (k <= 0) return result;

  const std::span<RankKey> keys = best_tokens(row, k, kLowestLogit, scratch);
  std::sort(keys.begin(), keys.end(), std::greater<>());
  int32_t rank = 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    const float logit = key_logit(keys[i]);
    if (i > 0 && logit < key_logit(keys[i - 1])) rank = static_cast<int32_t>(i + 1);
    result.push_back({key_token_id(keys[i]), logprob(logit), rank});
  }
  return result;
}

Result<TokenLogprobs> row_logprobs(const float* logits,
                                   int64_t vocab_size,
                                   int32_t chosen_token_id,
                                   int32_t k,
                                   RowScratch& scratch) {
  const LogitsRow row = scan_row(logits, vocab_size, scratch);
  if (row.fault != RowFault::kNone) return row_status(row.fault);
  return row_logprobs(row, chosen_token_id, k, scratch);
}

}  // namespace atom
