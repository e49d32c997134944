#include "sampling/filters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "sampling/row_kernels.h"

namespace atom {
namespace {

Cut cut_at(RankKey key) {
  return {key_logit(key), key_token_id(key)};
}

class Masses {
 public:
  Masses(float max, float inverse_temperature)
      : max_(max), inverse_temperature_(inverse_temperature) {}

  // The sum of the tokens' unnormalised probabilities.
  double of(std::span<const RankKey> keys) const {
    double total = 0;
    float values[kRowBlock];
    for (size_t begin = 0; begin < keys.size(); begin += kRowBlock) {
      const size_t count = std::min<size_t>(kRowBlock, keys.size() - begin);
      for (size_t i = 0; i < count; ++i) values[i] = key_logit(keys[begin + i]);
      row_kernels().exp_weights(
          values, static_cast<int64_t>(count), max_, inverse_temperature_, values);
      for (size_t i = 0; i < count; ++i) total += values[i];
    }
    return total;
  }

 private:
  float max_;
  float inverse_temperature_;
};

// The last of the fewest best keys that weigh `target`, or the worst key when all weigh less.
// Reorders the keys. Linear time: halves by rank, then descends into the half with the answer.
RankKey last_within_mass(std::span<RankKey> keys, double target, const Masses& masses) {
  constexpr size_t kSorted = 64;
  double above = 0;
  while (keys.size() > kSorted) {
    const size_t middle = keys.size() / 2;
    std::nth_element(keys.begin(), keys.begin() + middle, keys.end(), std::greater<>());
    const double upper = masses.of(keys.first(middle));
    if (above + upper >= target) {
      keys = keys.first(middle);
    } else {
      above += upper;
      keys = keys.subspan(middle);
    }
  }
  std::sort(keys.begin(), keys.end(), std::greater<>());
  for (size_t i = 0; i + 1 < keys.size(); ++i) {
    above += masses.of(keys.subspan(i, 1));
    if (above >= target) return keys[i];
  }
  return keys.back();
}

}  // namespace

Cut choose_cut(const LogitsRow& row, const SamplingParams& params, RowScratch& scratch) {
  Cut cut;
  if (params.min_p > 0.0f) {
    cut.logit = row.max + params.temperature * std::log(params.min_p);
  }
  const float lowest = std::max(cut.logit, kLowestLogit);
  const bool limits_count = params.top_k > 0 && params.top_k < row.vocab_size;
  std::span<RankKey> keys;
  if (limits_count) {
    keys = best_tokens(row, params.top_k, lowest, scratch);
    if (keys.size() == static_cast<size_t>(params.top_k)) cut = cut_at(keys.back());
  }
  if (params.top_p >= 1.0f) return cut;

  const float inverse_temperature = 1.0f / params.temperature;
  const Masses masses(row.max, inverse_temperature);
  const double top_p = params.top_p;
  if (limits_count) return cut_at(last_within_mass(keys, top_p * masses.of(keys), masses));

  const double total = row_kernels().exp_sum(
      row.logits, row.vocab_size, row.block_max, row.max, inverse_temperature, lowest);
  // All tokens lighter than this together weigh less than 1 - top_p of the total, so none of them
  // is needed.
  const double needless = (1.0 - top_p) * total / static_cast<double>(row.vocab_size);
  const float bound = row.max + params.temperature * static_cast<float>(std::log(needless));
  keys = tokens_from(row, std::max(lowest, bound), scratch);
  return cut_at(last_within_mass(keys, top_p * total, masses));
}

}  // namespace atom
