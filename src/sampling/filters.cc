#include "sampling/filters.h"

#include <algorithm>
#include <array>
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

  // Calls body(key, logit, mass) for each key; mass is its unnormalized probability.
  template <typename Body>
  void for_each(std::span<const RankKey> keys, Body&& body) const {
    float logits[kRowBlock];
    float weights[kRowBlock];
    for (size_t begin = 0; begin < keys.size(); begin += kRowBlock) {
      const size_t count = std::min<size_t>(kRowBlock, keys.size() - begin);
      for (size_t i = 0; i < count; ++i) logits[i] = key_logit(keys[begin + i]);
      row_kernels().exp_weights(
          logits, static_cast<int64_t>(count), max_, inverse_temperature_, weights);
      for (size_t i = 0; i < count; ++i) body(keys[begin + i], logits[i], weights[i]);
    }
  }

  double of(std::span<const RankKey> keys) const {
    double total = 0;
    for_each(keys, [&](RankKey, float, float mass) { total += mass; });
    return total;
  }

 private:
  float max_;
  float inverse_temperature_;
};

// Equal steps of logit from the best key down; monotone in rank.
struct Buckets {
  static constexpr int kNumBuckets = 1024;
  float top;
  float scale;

  int of(float logit) const {
    return static_cast<int>(std::min((top - logit) * scale, float{kNumBuckets - 1}));
  }
};

// The keys of the one bucket that holds the answer of last_within_mass; adds what better buckets
// weigh to `above`. All keys when their logits cannot be told apart by buckets.
std::span<RankKey> narrow_to_bucket(std::span<RankKey> keys,
                                    double target,
                                    const Masses& masses,
                                    double& above) {
  RankKey best = keys[0];
  RankKey worst = keys[0];
  for (RankKey key : keys) {
    best = std::max(best, key);
    worst = std::min(worst, key);
  }
  const float top = key_logit(best);
  const float range = top - key_logit(worst);
  const Buckets buckets{top, Buckets::kNumBuckets / range};
  if (!std::isfinite(range) || !std::isfinite(buckets.scale)) return keys;

  std::array<double, Buckets::kNumBuckets> bucket_mass{};
  masses.for_each(keys, [&](RankKey, float logit, float mass) {
    bucket_mass[static_cast<size_t>(buckets.of(logit))] += mass;
  });
  const int last_used = buckets.of(key_logit(worst));
  int chosen = 0;
  while (chosen < last_used && above + bucket_mass[static_cast<size_t>(chosen)] < target) {
    above += bucket_mass[static_cast<size_t>(chosen++)];
  }
  const auto end = std::remove_if(
      keys.begin(), keys.end(), [&](RankKey key) { return buckets.of(key_logit(key)) != chosen; });
  return keys.first(static_cast<size_t>(end - keys.begin()));
}

// The last of the fewest best keys that weigh `target`, or the worst key when all weigh less.
// Reorders the keys. Linear time: one bucket of many, then halves by rank.
RankKey last_within_mass(std::span<RankKey> keys, double target, const Masses& masses) {
  constexpr size_t kWorthBuckets = 4096;
  constexpr size_t kSorted = 64;
  double above = 0;
  if (keys.size() > kWorthBuckets) keys = narrow_to_bucket(keys, target, masses, above);
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
  RankKey last = keys.back();
  bool reached = false;
  masses.for_each(keys, [&](RankKey key, float, float mass) {
    if (reached) return;
    above += mass;
    reached = above >= target;
    if (reached) last = key;
  });
  return last;
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
  keys = tokens_from(row, std::clamp(bound, lowest, row.max), scratch);
  return cut_at(last_within_mass(keys, top_p * total, masses));
}

}  // namespace atom
