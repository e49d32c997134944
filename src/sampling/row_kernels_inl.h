// The body of the row kernels, included once by each row_kernels_<isa>.cc. Written with the
// compiler's vector extension at the width of the machine's registers, over sums that are kept in
// sixteen lanes whatever that width. No fused multiply-add, so that all builds round alike.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "sampling/row_kernels.h"

// gcc 12 takes the deliberately undefined operand of unmasked AVX-512 intrinsics for a mistake.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define ATOM_INLINE static inline __attribute__((always_inline))

namespace atom {
namespace {

#if defined(__AVX512F__)
#define ATOM_VECTOR __attribute__((vector_size(64)))
#elif defined(__AVX2__)
#define ATOM_VECTOR __attribute__((vector_size(32)))
#else
#define ATOM_VECTOR __attribute__((vector_size(16)))
#endif
typedef float Floats ATOM_VECTOR;
typedef int32_t Ints ATOM_VECTOR;
typedef uint32_t Words ATOM_VECTOR;
#undef ATOM_VECTOR

constexpr int kLanes = sizeof(Floats) / sizeof(float);
constexpr int kGroups = kRowBlock / kLanes;  // vectors of a block
constexpr int kNoiseLanes = 16;              // counters of a block, as in philox.h
constexpr int kSumLanes = 16;

constexpr float kInfinity = __builtin_inff();
constexpr float kLn2High = 0x1.62e4p-1f;  // 16 bits: exact times any exponent
constexpr float kLn2Low = 1.4286068203e-6f;

#if defined(__AVX512F__)
ATOM_INLINE bool any(Ints mask) {
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}
// The larger of each lane; b where either is NaN.
ATOM_INLINE Floats larger(Floats a, Floats b) {
  return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
}
// a * m as 64 bits in two halves.
ATOM_INLINE void multiply(Words a, Words m, Words* high, Words* low) {
  const __m512i even = _mm512_mul_epu32((__m512i)a, (__m512i)m);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), (__m512i)m);
  *high = (Words)_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
  *low = (Words)_mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
}
#elif defined(__AVX2__)
ATOM_INLINE bool any(Ints mask) {
  return _mm256_movemask_epi8((__m256i)mask) != 0;
}
ATOM_INLINE Floats larger(Floats a, Floats b) {
  return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
}
ATOM_INLINE void multiply(Words a, Words m, Words* high, Words* low) {
  const __m256i even = _mm256_mul_epu32((__m256i)a, (__m256i)m);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), (__m256i)m);
  *high = (Words)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  *low = (Words)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
#else
ATOM_INLINE bool any(Ints mask) {
  return _mm_movemask_epi8((__m128i)mask) != 0;
}
ATOM_INLINE Floats larger(Floats a, Floats b) {
  return (Floats)_mm_max_ps((__m128)a, (__m128)b);
}
ATOM_INLINE void multiply(Words a, Words m, Words* high, Words* low) {
  const __m128i even = _mm_mul_epu32((__m128i)a, (__m128i)m);
  const __m128i odd = _mm_mul_epu32(_mm_srli_epi64((__m128i)a, 32), (__m128i)m);
  *high = (Words)_mm_blend_epi16(_mm_srli_epi64(even, 32), odd, 0xcc);
  *low = (Words)_mm_blend_epi16(even, _mm_slli_epi64(odd, 32), 0xcc);
}
#endif

ATOM_INLINE Floats splat(float value) {
  return Floats{} + value;
}

ATOM_INLINE Floats load(const float* source) {
  Floats value;
  memcpy(&value, source, sizeof value);
  return value;
}

ATOM_INLINE void store(float* target, Floats value) {
  memcpy(target, &value, sizeof value);
}

// 0, 1, 2, ...
ATOM_INLINE Ints lane_numbers() {
  static const int32_t kNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Ints value;
  memcpy(&value, kNumbers, sizeof value);
  return value;
}

ATOM_INLINE float largest_lane(Floats value) {
  __m128 part[kLanes / 4];
  memcpy(part, &value, sizeof part);
  __m128 most = part[0];
  for (int i = 1; i < kLanes / 4; ++i) most = _mm_max_ps(most, part[i]);
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_shuffle_ps(most, most, 1)));
}

// The logits of the block at `begin`, in place or, for a short last block, copied to `padded` and
// filled with -inf.
ATOM_INLINE const float* block_logits(const float* logits,
                                      int64_t vocab_size,
                                      int64_t begin,
                                      float* padded) {
  if (begin + kRowBlock <= vocab_size) return logits + begin;
  for (int64_t i = 0; i < kRowBlock; ++i) {
    padded[i] = begin + i < vocab_size ? logits[begin + i] : -kInfinity;
  }
  return padded;
}

// exp(x) for x <= 0, within 2 ulp; 0 below -87.
ATOM_INLINE Floats exp_nonpositive(Floats x) {
  const Ints normal = x > -87.0f;
  const Floats clamped = normal ? x : splat(-87.0f);
  const Ints exponent = __builtin_convertvector(clamped * 1.44269504f - 0.5f, Ints);
  const Floats k = __builtin_convertvector(exponent, Floats);
  const Floats r = (clamped - k * kLn2High) - k * kLn2Low;
  // Minimax fit of (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2, error 3e-9.
  Floats p = r * 1.381461309e-03f + 8.368709832e-03f;
  p = p * r + 4.166838736e-02f;
  p = p * r + 1.666652069e-01f;
  p = p * r + 4.999999345e-01f;
  p = (p * r * r + r) + 1.0f;
  return normal ? p * (Floats)((exponent + 127) << 23) : splat(0.0f);
}

// log(1 + r) for 1 + r in [sqrt(1/2), sqrt(2)], relative error below 2e-7 also near 0.
ATOM_INLINE Floats log1p_reduced(Floats r) {
  // Minimax fit of (log(1 + r) - r + r^2 / 2) / r^3, error 3e-8 of the whole.
  Floats p = r * 8.700434527e-02f - 1.426748677e-01f;
  p = p * r + 1.491476823e-01f;
  p = p * r - 1.657758470e-01f;
  p = p * r + 1.996306378e-01f;
  p = p * r - 2.500133704e-01f;
  p = p * r + 3.333391074e-01f;
  return (p * r - 0.5f) * (r * r) + r;
}

// x = mantissa * 2^exponent with the mantissa in [sqrt(1/2), sqrt(2)); x positive and normal.
ATOM_INLINE Floats split_exponent(Floats x, Ints* exponent) {
  const Ints bits = (Ints)x;
  *exponent = (bits - 0x3f3504f3) >> 23;
  return (Floats)(bits - (*exponent << 23));
}

// -log(E) with E ~ Exp(1) from uniform words, as RowKernels::draw documents. In [-2.82, 22.19].
ATOM_INLINE Floats gumbel_noise(Words words) {
  const Floats raw = __builtin_convertvector((Ints)(words >> 1), Floats) * 0x1p-31f + 0x1p-32f;
  const Floats v = raw < 1.0f - 0x1p-24f ? raw : splat(1.0f - 0x1p-24f);
  Ints exponent;
  const Floats mantissa = split_exponent(1.0f - v, &exponent);
  // The likely winners have a small v, which 1 - v would round away.
  const Floats r = exponent == 0 ? -v : mantissa - 1.0f;
  const Floats k = __builtin_convertvector(exponent, Floats);
  const Floats exponential = -((log1p_reduced(r) + k * kLn2Low) + k * kLn2High);

  const Floats reduced = split_exponent(exponential, &exponent) - 1.0f;
  const Floats n = __builtin_convertvector(exponent, Floats);
  return -((log1p_reduced(reduced) + n * kLn2Low) + n * kLn2High);
}
constexpr float kLeastNoise = -2.9f;
constexpr float kMostNoise = 22.25f;

// The noise words of the 64 tokens of block `block`.
ATOM_INLINE void block_noise(uint64_t seed, uint32_t position, int64_t block, uint32_t* words) {
  const Words multiplier0 = Words{} + 0xd2511f53u;
  const Words multiplier1 = Words{} + 0xcd9e8d57u;
  for (int lane = 0; lane < kNoiseLanes; lane += kLanes) {
    Words c0 = (Words)lane_numbers() + (uint32_t)(block * kNoiseLanes + lane);
    Words c1 = Words{} + position;
    Words c2 = {};
    Words c3 = {};
    uint32_t key0 = (uint32_t)seed;
    uint32_t key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      Words high0, low0, high1, low1;
      multiply(c0, multiplier0, &high0, &low0);
      multiply(c2, multiplier1, &high1, &low1);
      c0 = high1 ^ c1 ^ key0;
      c1 = low1;
      c2 = high0 ^ c3 ^ key1;
      c3 = low0;
      key0 += 0x9e3779b9u;
      key1 += 0xbb67ae85u;
    }
    memcpy(words + lane, &c0, sizeof c0);
    memcpy(words + kNoiseLanes + lane, &c1, sizeof c1);
    memcpy(words + 2 * kNoiseLanes + lane, &c2, sizeof c2);
    memcpy(words + 3 * kNoiseLanes + lane, &c3, sizeof c3);
  }
}

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
