// The arithmetic of sampling/row_kernels.h on a GPU: the same IEEE operations in the same order, so
// that a weight or a score has the same bits as on a CPU. The intrinsics keep the compiler from
// fusing multiplications and additions.
#pragma once

#include <cstdint>

#include "tensor/gpu_api.h"

namespace atom::device {

constexpr float kLn2High = 0x1.62e4p-1f;
constexpr float kLn2Low = 1.4286068203e-6f;

__device__ inline float multiply_add(float a, float b, float c) {
  return gpu_add(gpu_multiply(a, b), c);
}

// (logit - max) * inverse_temperature.
__device__ inline float tempered(float logit, float max, float inverse_temperature) {
  return gpu_multiply(gpu_subtract(logit, max), inverse_temperature);
}

// exp(x) for x <= 0; 0 below -87.
__device__ inline float exp_nonpositive(float x) {
  if (!(x > -87.0f)) return 0.0f;
  const int exponent = __float2int_rz(gpu_subtract(gpu_multiply(x, 1.44269504f), 0.5f));
  const float k = __int2float_rn(exponent);
  const float r =
      gpu_subtract(gpu_subtract(x, gpu_multiply(k, kLn2High)), gpu_multiply(k, kLn2Low));
  float p = multiply_add(r, 1.381461309e-03f, 8.368709832e-03f);
  p = multiply_add(p, r, 4.166838736e-02f);
  p = multiply_add(p, r, 1.666652069e-01f);
  p = multiply_add(p, r, 4.999999345e-01f);
  p = gpu_add(gpu_add(gpu_multiply(gpu_multiply(p, r), r), r), 1.0f);
  return gpu_multiply(p, __int_as_float((exponent + 127) << 23));
}

// log(1 + r) for 1 + r in [sqrt(1/2), sqrt(2)].
__device__ inline float log1p_reduced(float r) {
  float p = gpu_subtract(gpu_multiply(r, 8.700434527e-02f), 1.426748677e-01f);
  p = multiply_add(p, r, 1.491476823e-01f);
  p = gpu_subtract(gpu_multiply(p, r), 1.657758470e-01f);
  p = multiply_add(p, r, 1.996306378e-01f);
  p = gpu_subtract(gpu_multiply(p, r), 2.500133704e-01f);
  p = multiply_add(p, r, 3.333391074e-01f);
  return multiply_add(gpu_subtract(gpu_multiply(p, r), 0.5f), gpu_multiply(r, r), r);
}

// x = result * 2^exponent with the result in [sqrt(1/2), sqrt(2)); x positive and normal.
__device__ inline float split_exponent(float x, int& exponent) {
  const int bits = __float_as_int(x);
  exponent = (bits - 0x3f3504f3) >> 23;
  return __int_as_float(bits - (exponent << 23));
}

// log of reduced + 1 times 2^exponent.
__device__ inline float log_of(float reduced, int exponent) {
  const float k = __int2float_rn(exponent);
  const float low = gpu_add(log1p_reduced(reduced), gpu_multiply(k, kLn2Low));
  return gpu_add(low, gpu_multiply(k, kLn2High));
}

// -log(E) with E ~ Exp(1) from a uniform word.
__device__ inline float gumbel_noise(uint32_t word) {
  const float raw = multiply_add(__int2float_rn(static_cast<int>(word >> 1)), 0x1p-31f, 0x1p-32f);
  const float v = raw < 1.0f - 0x1p-24f ? raw : 1.0f - 0x1p-24f;
  int exponent;
  const float mantissa = split_exponent(gpu_subtract(1.0f, v), exponent);
  // The likely winners have a small v, which 1 - v would round away.
  const float r = exponent == 0 ? -v : gpu_subtract(mantissa, 1.0f);
  const float exponential = -log_of(r, exponent);
  const float reduced = gpu_subtract(split_exponent(exponential, exponent), 1.0f);
  return -log_of(reduced, exponent);
}
constexpr float kLeastNoise = -2.9f;
constexpr float kMostNoise = 22.25f;

// sampling/philox.h.
__device__ inline uint4 philox(uint32_t counter0, uint32_t counter1, uint64_t key) {
  uint4 c = make_uint4(counter0, counter1, 0, 0);
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xd2511f53u} * c.x, product1 = uint64_t{0xcd9e8d57u} * c.z;
    c = make_uint4(static_cast<uint32_t>(product1 >> 32) ^ c.y ^ key0,
                   static_cast<uint32_t>(product1),
                   static_cast<uint32_t>(product0 >> 32) ^ c.w ^ key1,
                   static_cast<uint32_t>(product0));
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return c;
}

// Larger for larger logits; -0 as 0.
__device__ inline uint32_t ordered_bits(float logit) {
  const uint32_t bits = __float_as_uint(gpu_add(logit, 0.0f));
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

__device__ inline float from_ordered_bits(uint32_t ordered) {
  return __uint_as_float(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

}  // namespace atom::device
