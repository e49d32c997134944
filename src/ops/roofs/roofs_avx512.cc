#include <immintrin.h>

#include "ops/roofs/roofs_kernels.h"

// gcc 12 warns of its own _mm512_undefined_ps().
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace atom::ops::roofs_kernels {
namespace {

// More than latency times throughput of the instructions measured.
constexpr int kChains = 16;

// Different starts, unknown to the compiler: equal chains would be computed once.
inline void start(__m512 (&sums)[kChains], int64_t seed) {
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(seed + i));
}

int64_t fold(const __m512 (&sums)[kChains], int64_t flops) {
  __m512 total = sums[0];
  for (int i = 1; i < kChains; ++i) total = _mm512_add_ps(total, sums[i]);
  // Never true, but the compiler cannot know.
  return _mm512_reduce_add_ps(total) == 12345.0f ? flops + 1 : flops;
}

template <bool kPrefetch>
uint64_t read(const char* data, int64_t size, int64_t ahead) {
  __m512i sums[4] = {};
  for (int64_t offset = 0; offset < size; offset += 1024) {
    const char* block = data + offset;
    for (int line = 0; line < 16; ++line) {
      if (kPrefetch) _mm_prefetch(block + ahead + line * 64, _MM_HINT_T1);
      sums[line % 4] = _mm512_xor_si512(sums[line % 4], _mm512_loadu_si512(block + line * 64));
    }
  }
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  return _mm512_reduce_add_epi64(all);
}

}  // namespace

uint64_t read_avx512(const char* data, int64_t size, int64_t ahead) {
  return ahead == 0 ? read<false>(data, size, 0) : read<true>(data, size, ahead);
}

int64_t bf16_flops_avx512(int64_t iterations) {
  __m512 sums[kChains];
  start(sums, iterations);
  const __m512i x = _mm512_set1_epi32(0x3f803f80);
  const __m512i y = _mm512_set1_epi32(0x3a803a80);
  for (int64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_dpbf16_ps(sums[c], (__m512bh)x, (__m512bh)y);
    }
  }
  return fold(sums, iterations * kChains * 64);
}

int64_t f32_flops_avx512(int64_t iterations) {
  __m512 sums[kChains];
  start(sums, iterations);
  const __m512 x = _mm512_set1_ps(1.0f);
  const __m512 y = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_fmadd_ps(x, y, sums[c]);
    }
  }
  return fold(sums, iterations * kChains * 32);
}

}  // namespace atom::ops::roofs_kernels
