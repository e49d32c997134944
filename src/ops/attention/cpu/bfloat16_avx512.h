// Inside attention, for files compiled for AVX-512: operands in bfloat16. Everything has internal
// linkage, as in ops/simd/avx512.h.
#pragma once

#include <string.h>

#include "ops/simd/avx512.h"

namespace atom::ops {
namespace {

// Products of pairs of bfloat16, summed in float32; weights are rounded to bfloat16.
struct BFloat16Math {
  using Simd = Avx512;
  using Operand = uint16_t;
  using Packed = __m512bh;
  static constexpr int kDepth = 2;
  static constexpr int kRows = 6;
  static constexpr int kVectors = 4;

  static Packed broadcast(const uint16_t* p) {
    int32_t pair;
    memcpy(&pair, p, sizeof(pair));
    return (__m512bh)_mm512_set1_epi32(pair);
  }
  static Packed load_packed(const uint16_t* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static Packed packed(__m512 units) { return (__m512bh)_mm512_castps_si512(units); }
  static __m512 multiply_add(Packed a, Packed b, __m512 c) { return _mm512_dpbf16_ps(c, a, b); }
  static void store_weights(uint16_t* p, __m512 weights) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(weights));
  }

  static __m512 load_units(const BFloat16Bits* row, int64_t begin) {
    return _mm512_loadu_ps(row + 2 * begin);
  }
  static __m512 load_units(const BFloat16Bits* row, int64_t begin, int64_t count) {
    return _mm512_maskz_loadu_ps(Simd::first(count), row + 2 * begin);
  }
  static void copy_operands(const BFloat16Bits* from, int64_t size, uint16_t* to) {
    memcpy(to, from, size * sizeof(uint16_t));
  }
  // 32 elements of two rows as pairs (row 0, row 1).
  template <typename T>
  static inline __attribute__((always_inline)) void load_values(const char* const* rows,
                                                                int64_t dim,
                                                                Packed* values) {
    const __m512i even = _mm512_loadu_si512(rows[0] + 2 * dim);
    const __m512i odd = _mm512_loadu_si512(rows[1] + 2 * dim);
    values[0] = (__m512bh)_mm512_permutex2var_epi16(even, pair_order(0), odd);
    values[1] = (__m512bh)_mm512_permutex2var_epi16(even, pair_order(16), odd);
  }
  // Two rows as pairs (row 0, row 1), padded with zeros to 16 pairs.
  template <typename T>
  static void interleave(const char* const* rows, int64_t size, uint16_t* to) {
    const __m512i low = pair_order(0), high = pair_order(16);
    int64_t i = 0;
    for (; i + 32 <= size; i += 32) {
      const __m512i even = _mm512_loadu_si512(rows[0] + 2 * i);
      const __m512i odd = _mm512_loadu_si512(rows[1] + 2 * i);
      _mm512_storeu_si512(to + 2 * i, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_storeu_si512(to + 2 * i + 32, _mm512_permutex2var_epi16(even, high, odd));
    }
    for (; i < size; i += 16) {
      const __mmask32 mask = size - i < 16 ? 0xff : 0xffff;
      const __m512i even = _mm512_maskz_loadu_epi16(mask, rows[0] + 2 * i);
      const __m512i odd = _mm512_maskz_loadu_epi16(mask, rows[1] + 2 * i);
      _mm512_storeu_si512(to + 2 * i, _mm512_permutex2var_epi16(even, low, odd));
    }
  }

 private:
  // (first, 32 + first, first + 1, 33 + first, ...): pairs of one word from each of two registers.
  static __m512i pair_order(int first) {
    const __m512i step = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i even = _mm512_add_epi32(step, _mm512_set1_epi32(first));
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(32));
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
  }
};

}  // namespace
}  // namespace atom::ops
