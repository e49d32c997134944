// Eight floats at a time for files compiled for AVX2. Everything has internal linkage, so that
// nothing of it is merged into code for lesser processors. avx512.h offers the same interface.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "tensor/element.h"

namespace atom::ops {
namespace {

struct Avx2 {
  using Float = __m256;
  static constexpr int kWidth = 8;

  static Float zero() { return _mm256_setzero_ps(); }
  static Float set(float x) { return _mm256_set1_ps(x); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float div(Float a, Float b) { return _mm256_div_ps(a, b); }
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float absolute(Float a) { return _mm256_andnot_ps(set(-0.0f), a); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static float sum(Float a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float largest(Float a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  static Float load(const float* p) { return _mm256_loadu_ps(p); }
  static Float load(const BFloat16Bits* p) {
    return from_bfloat16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Float load(const Float16Bits* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Float load(const Float8Bits* p) {
    return from_float8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static void store(float* p, Float a) { _mm256_storeu_ps(p, a); }
  static void store(BFloat16Bits* p, Float a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bfloat16(a));
  }
  static void store(Float16Bits* p, Float a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_float16(a));
  }
  static void store(Float8Bits* p, Float a) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), to_float8(a));
  }

  // The first n < kWidth elements; the rest of the register is zero.
  template <typename T>
  static Float load(const T* p, int64_t n) {
    T all[kWidth] = {};
    memcpy(all, p, n * sizeof(T));
    return load(all);
  }
  template <typename T>
  static void store(T* p, int64_t n, Float a) {
    T all[kWidth];
    store(all, a);
    memcpy(p, all, n * sizeof(T));
  }

  // To the nearest T and back.
  template <typename T>
  static Float round_to(Float a);

  // (x0, x1, x2, ...) to (x1, x0, x3, ...).
  static Float swap_pairs(Float a) { return _mm256_permute_ps(a, 0xb1); }
  // a * b - c in even lanes, a * b + c in odd ones.
  static Float fma_sub_add(Float a, Float b, Float c) { return _mm256_fmaddsub_ps(a, b, c); }
  // (c0, c0, c1, c1, ...) from kWidth / 2 floats.
  static Float load_doubled(const float* p) {
    const __m256i twice = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), twice);
  }

  // Lanes [begin, end) of a, the others from b. The bounds may lie outside the register.
  static Float keep(Float a, int64_t begin, int64_t end, Float b) {
    const __m256 lane = _mm256_set_ps(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256 from = _mm256_cmp_ps(lane, set(static_cast<float>(begin)), _CMP_GE_OQ);
    const __m256 to = _mm256_cmp_ps(lane, set(static_cast<float>(end)), _CMP_LT_OQ);
    return _mm256_blendv_ps(b, a, _mm256_and_ps(from, to));
  }

  // Rows become columns.
  static inline __attribute__((always_inline)) void transpose(Float rows[kWidth]) {
    __m256 t[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; i += 2) {
      t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; i += 4) {
      rows[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      rows[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      rows[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      rows[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
      const __m256 upper = rows[i], lower = rows[i + 4];
      rows[i] = _mm256_permute2f128_ps(upper, lower, 0x20);
      rows[i + 4] = _mm256_permute2f128_ps(upper, lower, 0x31);
    }
  }

  // 2^x within 1.02 ulp (minimax polynomial); exactly 1 at 0 and exactly 0 below -126.
  static Float exp2(Float x) {
    // The operand order lets NaN through.
    const Float clamped = _mm256_min_ps(set(128.0f), _mm256_max_ps(set(-126.0f), x));
    const Float whole = _mm256_round_ps(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Float f = _mm256_sub_ps(clamped, whole);
    Float p = set(1.559467755e-4f);
    p = fma(p, f, set(1.340664391e-3f));
    p = fma(p, f, set(9.617692975e-3f));
    p = fma(p, f, set(5.550310551e-2f));
    p = fma(p, f, set(2.402265278e-1f));
    p = fma(p, f, set(6.931472150e-1f));
    p = fma(p, f, set(1.0f));
    // Two factors: 2^128 alone is not a float.
    const __m256i n = _mm256_cvtps_epi32(whole);
    const __m256i half = _mm256_srai_epi32(n, 1);
    p = _mm256_mul_ps(_mm256_mul_ps(p, power(half)), power(_mm256_sub_epi32(n, half)));
    return _mm256_and_ps(p, _mm256_cmp_ps(x, set(-126.0f), _CMP_NLT_UQ));
  }

 private:
  static Float power(__m256i exponent) {
    const __m256i biased = _mm256_add_epi32(exponent, _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static Float from_bfloat16(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // Upper halves rounded to nearest even, left in place.
  static __m256i rounded_bfloat16(Float a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(up, quiet, nan);
  }
  static __m128i to_bfloat16(Float a) {
    const __m256i upper = _mm256_srli_epi32(rounded_bfloat16(a), 16);
    const __m256i packed = _mm256_packus_epi32(upper, upper);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  }
  // As float16 a code is 2^-8 of its value, subnormal or not; the codes of NaN are numbers there.
  static Float from_float8(__m128i codes) {
    const __m128i wide = _mm_slli_epi16(_mm_cvtepu8_epi16(codes), 8);
    const __m128i half = _mm_and_si128(_mm_srai_epi16(wide, 1), _mm_set1_epi16(-0x4080));
    const Float value = _mm256_mul_ps(_mm256_cvtph_ps(half), set(256.0f));
    const __m128i magnitude = _mm_and_si128(codes, _mm_set1_epi8(0x7f));
    const __m128i nan = _mm_cmpeq_epi8(magnitude, _mm_set1_epi8(0x7f));
    return _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_cvtepi8_epi32(nan)));
  }
  // To nearest even, saturating; what from_float<Float8E4M3> computes (tensor/float8.h).
  static __m128i to_float8(Float a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i limited = _mm256_castps_si256(_mm256_min_ps(absolute(a), set(448.0f)));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(limited, 20), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(limited, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff - (120 << 23))));
    const __m256i normal = _mm256_srli_epi32(rounded, 20);
    const __m256i steps =
        _mm256_and_si256(_mm256_castps_si256(add(_mm256_castsi256_ps(limited), set(0x1p14f))),
                         _mm256_set1_epi32(0xff));
    const __m256i subnormal =
        _mm256_castps_si256(_mm256_cmp_ps(_mm256_castsi256_ps(limited), set(0x1p-6f), _CMP_LT_OQ));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    __m256i code = _mm256_blendv_epi8(normal, steps, subnormal);
    code = _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7f), nan);
    code = _mm256_or_si256(code, _mm256_slli_epi32(_mm256_srli_epi32(bits, 31), 7));
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    return _mm_packus_epi16(words, words);
  }
  static __m128i to_float16(Float a) {
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

template <>
inline __m256 Avx2::round_to<float>(__m256 a) {
  return a;
}
template <>
inline __m256 Avx2::round_to<BFloat16Bits>(__m256 a) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(rounded_bfloat16(a), _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
template <>
inline __m256 Avx2::round_to<Float16Bits>(__m256 a) {
  return _mm256_cvtph_ps(to_float16(a));
}

}  // namespace
}  // namespace atom::ops
