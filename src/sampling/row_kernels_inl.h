// The body of the row kernels, included once by each row_kernels_<isa>.cc. Written with the
// compiler's vector extension at the width of the machine's registers, over sums that are kept in
// sixteen lanes whatever that width. No fused multiply-add, so that all builds round alike.
#pragma once

#include "sampling/row_noise_inl.h"

namespace atom {
namespace {

bool scan(const float* logits, int64_t vocab_size, float* block_max) {
  Ints nan = {};
  float padded[kRowBlock];
  for (int64_t begin = 0; begin < vocab_size; begin += kRowBlock) {
    const float* x = block_logits(logits, vocab_size, begin, padded);
    Floats most = splat(-kInfinity);
    for (int group = 0; group < kGroups; ++group) {
      const Floats value = load(x + group * kLanes);
      nan |= value != value;
      most = larger(value, most);
    }
    block_max[begin / kRowBlock] = largest_lane(most);
  }
  return !any(nan);
}

double exp_sum(const float* logits,
               int64_t vocab_size,
               const float* block_max,
               float max,
               float inverse_temperature,
               float lowest) {
  // Lanes are summed in float over a short stretch, stretches in double.
  constexpr int64_t kStretch = 16 * kRowBlock;
  constexpr int kSums = kSumLanes / kLanes;
  double total = 0;
  float padded[kRowBlock];
  for (int64_t stretch = 0; stretch < vocab_size; stretch += kStretch) {
    Floats sums[kSums] = {};
    for (int64_t begin = stretch; begin < stretch + kStretch && begin < vocab_size;
         begin += kRowBlock) {
      const float most = block_max[begin / kRowBlock];
      if (most < lowest || !((most - max) * inverse_temperature > -87.0f)) continue;
      const float* x = block_logits(logits, vocab_size, begin, padded);
      for (int group = 0; group < kGroups; ++group) {
        const Floats value = load(x + group * kLanes);
        const Floats weight = exp_nonpositive((value - max) * inverse_temperature);
        sums[group % kSums] += value >= lowest ? weight : splat(0.0f);
      }
    }
    float lanes[kSumLanes];
    memcpy(lanes, sums, sizeof lanes);
    for (int lane = 0; lane < kSumLanes; ++lane) total += lanes[lane];
  }
  return total;
}

void exp_weights(
    const float* logits, int64_t count, float max, float inverse_temperature, float* weights) {
  float padded[kRowBlock];
  float result[kRowBlock];
  for (int64_t begin = 0; begin < count; begin += kRowBlock) {
    const float* x = block_logits(logits, count, begin, padded);
    const bool whole = begin + kRowBlock <= count;
    float* target = whole ? weights + begin : result;
    for (int group = 0; group < kGroups; ++group) {
      const Floats value = load(x + group * kLanes);
      store(target + group * kLanes, exp_nonpositive((value - max) * inverse_temperature));
    }
    if (!whole) memcpy(weights + begin, result, (size_t)(count - begin) * sizeof(float));
  }
}

int64_t count_greater(const float* logits,
                      int64_t vocab_size,
                      const float* block_max,
                      float value) {
  int64_t count = 0;
  float padded[kRowBlock];
  for (int64_t begin = 0; begin < vocab_size; begin += kRowBlock) {
    if (!(block_max[begin / kRowBlock] > value)) continue;
    const float* x = block_logits(logits, vocab_size, begin, padded);
    Ints lanes = {};
    for (int group = 0; group < kGroups; ++group) lanes -= load(x + group * kLanes) > value;
    for (int lane = 0; lane < kLanes; ++lane) count += lanes[lane];
  }
  return count;
}

int64_t draw(const DrawArguments& a) {
  // The largest logit takes part and scores at least this, so a lower score cannot win.
  float best = kLeastNoise;
  int64_t best_id = -1;
  float padded[kRowBlock];
  alignas(64) uint32_t words[kRowBlock];
  alignas(64) float scores[kRowBlock];
  for (int64_t begin = 0; begin < a.vocab_size; begin += kRowBlock) {
    const float most = a.block_max[begin / kRowBlock];
    if (most < a.cut_logit || (most - a.max) * a.inverse_temperature + kMostNoise < best) continue;
    const float* x = block_logits(a.logits, a.vocab_size, begin, padded);
    block_noise(a.seed, a.position, begin / kRowBlock, words);
    Ints beats = {};
    for (int group = 0; group < kGroups; ++group) {
      const Floats value = load(x + group * kLanes);
      const Ints ids = lane_numbers() + (int32_t)(begin + group * kLanes);
      const Ints kept = (value > a.cut_logit) | ((value == a.cut_logit) & (ids <= a.cut_token_id));
      Words noise;
      memcpy(&noise, words + group * kLanes, sizeof noise);
      const Floats score = (value - a.max) * a.inverse_temperature + gumbel_noise(noise);
      const Floats masked = kept ? score : splat(-kInfinity);
      store(scores + group * kLanes, masked);
      beats |= masked > best;
    }
    if (!any(beats)) continue;
    for (int64_t i = 0; i < kRowBlock; ++i) {
      if (scores[i] > best) {
        best = scores[i];
        best_id = begin + i;
      }
    }
  }
  return best_id;
}

}  // namespace
}  // namespace atom

#undef ATOM_INLINE
