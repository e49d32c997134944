// Inside row_kernels_inl.h: the vectors that row kernels are written in, of the width of the
// machine's registers.
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

}  // namespace
}  // namespace atom
