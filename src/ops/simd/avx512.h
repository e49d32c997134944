// Sixteen floats at a time for files compiled for AVX-512. Everything has internal linkage, so that
// nothing of it is merged into code for lesser processors. avx2.h offers the same interface.
#pragma once

// gcc 12 takes the undefined registers that its own intrinsics start from for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "tensor/element.h"

namespace atom::ops {
namespace {

struct Avx512 {
  using Float = __m512;
  static constexpr int kWidth = 16;

  static __mmask16 first(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }

  static Float zero() { return _mm512_setzero_ps(); }
  static Float set(float x) { return _mm512_set1_ps(x); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float div(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float absolute(Float a) { return _mm512_abs_ps(a); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static float sum(Float a) { return _mm512_reduce_add_ps(a); }
  static float largest(Float a) { return _mm512_reduce_max_ps(a); }

  static Float load(const float* p) { return _mm512_loadu_ps(p); }
  static Float load(const BFloat16Bits* p) {
    return from_bfloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Float load(const Float16Bits* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Float load(const Float8Bits* p) {
    return from_float8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store(float* p, Float a) { _mm512_storeu_ps(p, a); }
  static void store(BFloat16Bits* p, Float a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(a));
  }
  static void store(Float16Bits* p, Float a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_float16(a));
  }
  static void store(Float8Bits* p, Float a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_float8(a));
  }

  // The first n < kWidth elements; the rest of the register is zero.
  static Float load(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static Float load(const BFloat16Bits* p, int64_t n) {
    return from_bfloat16(_mm256_maskz_loadu_epi16(first(n), p));
  }
  static Float load(const Float16Bits* p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
  }
  static Float load(const Float8Bits* p, int64_t n) {
    return from_float8(_mm_maskz_loadu_epi8(first(n), p));
  }
  static void store(float* p, int64_t n, Float a) { _mm512_mask_storeu_ps(p, first(n), a); }
  static void store(BFloat16Bits* p, int64_t n, Float a) {
    _mm256_mask_storeu_epi16(p, first(n), (__m256i)_mm512_cvtneps_pbh(a));
  }
  static void store(Float16Bits* p, int64_t n, Float a) {
    _mm256_mask_storeu_epi16(p, first(n), to_float16(a));
  }
  static void store(Float8Bits* p, int64_t n, Float a) {
    _mm_mask_storeu_epi8(p, first(n), to_float8(a));
  }

  // To the nearest T and back.
  template <typename T>
  static Float round_to(Float a);

  // (x0, x1, x2, ...) to (x1, x0, x3, ...).
  static Float swap_pairs(Float a) { return _mm512_permute_ps(a, 0xb1); }
  // a * b - c in even lanes, a * b + c in odd ones.
  static Float fma_sub_add(Float a, Float b, Float c) { return _mm512_fmaddsub_ps(a, b, c); }
  // (c0, c0, c1, c1, ...) from kWidth / 2 floats.
  static Float load_doubled(const float* p) {
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
  }

  // Lanes [begin, end) of a, the others from b. The bounds may lie outside the register.
  static Float keep(Float a, int64_t begin, int64_t end, Float b) {
    const __mmask16 below_end = end >= kWidth ? 0xffff : end <= 0 ? 0 : first(end);
    const __mmask16 below_begin = begin >= kWidth ? 0xffff : begin <= 0 ? 0 : first(begin);
    return _mm512_mask_mov_ps(b, static_cast<__mmask16>(below_end & ~below_begin), a);
  }

  // Rows become columns.
  static inline __attribute__((always_inline)) void transpose(Float rows[kWidth]) {
    __m512 t[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; i += 2) {
      t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; i += 4) {
      const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
      const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
      rows[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
      rows[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
      rows[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
      rows[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    // Four by four blocks are done; now the blocks themselves, halves of registers at a time.
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0xdd);
      t[i + 8] = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0x88);
      t[i + 12] = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
      rows[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
      rows[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
      rows[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
  }

  // 2^x within 1.02 ulp (minimax polynomial); exactly 1 at 0 and exactly 0 below -126.
  static Float exp2(Float x) {
    const Float whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Float f = _mm512_sub_ps(x, whole);
    Float p = set(1.559467755e-4f);
    p = fma(p, f, set(1.340664391e-3f));
    p = fma(p, f, set(9.617692975e-3f));
    p = fma(p, f, set(5.550310551e-2f));
    p = fma(p, f, set(2.402265278e-1f));
    p = fma(p, f, set(6.931472150e-1f));
    p = fma(p, f, set(1.0f));
    const __mmask16 normal = _mm512_cmp_ps_mask(x, set(-126.0f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(normal, p, whole);
  }

 private:
  static Float from_bfloat16(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  // As float16 a code is 2^-8 of its value, subnormal or not; the codes of NaN are numbers there.
  static Float from_float8(__m128i codes) {
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    const __m256i half = _mm256_and_si256(_mm256_srai_epi16(wide, 1), _mm256_set1_epi16(-0x4080));
    const Float value = _mm512_mul_ps(_mm512_cvtph_ps(half), set(256.0f));
    const __m128i magnitude = _mm_and_si128(codes, _mm_set1_epi8(0x7f));
    const __mmask16 nan = _mm_cmpeq_epi8_mask(magnitude, _mm_set1_epi8(0x7f));
    return _mm512_mask_mov_ps(value, nan, set(__builtin_nanf("")));
  }
  // To nearest even, saturating; what from_float<Float8E4M3> computes (tensor/float8.h).
  static __m128i to_float8(Float a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const Float limited = _mm512_min_ps(_mm512_castsi512_ps(magnitude), set(448.0f));
    const __m512i limited_bits = _mm512_castps_si512(limited);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(limited_bits, 20), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(
        limited_bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff - (120 << 23))));
    __m512i code = _mm512_srli_epi32(rounded, 20);
    const __mmask16 subnormal = _mm512_cmp_ps_mask(limited, set(0x1p-6f), _CMP_LT_OQ);
    const __m512i steps = _mm512_castps_si512(add(limited, set(0x1p14f)));
    code = _mm512_mask_and_epi32(code, subnormal, steps, _mm512_set1_epi32(0xff));
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    code = _mm512_mask_mov_epi32(code, nan, _mm512_set1_epi32(0x7f));
    const __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(bits, 31), 7);
    return _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign));
  }
  static __m256i to_float16(Float a) {
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

template <>
inline __m512 Avx512::round_to<float>(__m512 a) {
  return a;
}
template <>
inline __m512 Avx512::round_to<BFloat16Bits>(__m512 a) {
  return from_bfloat16((__m256i)_mm512_cvtneps_pbh(a));
}
template <>
inline __m512 Avx512::round_to<Float16Bits>(__m512 a) {
  return _mm512_cvtph_ps(to_float16(a));
}

}  // namespace
}  // namespace atom::ops
