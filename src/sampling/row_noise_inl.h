// Inside row_kernels_inl.h: blocks of logits, exponentials, and the noise that draws tokens.
#pragma once

#include "sampling/row_vectors_inl.h"

namespace atom {
namespace {

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

}  // namespace
}  // namespace atom
