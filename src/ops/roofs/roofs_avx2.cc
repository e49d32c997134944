#include <immintrin.h>

#include "ops/roofs/roofs_kernels.h"

namespace atom::ops::roofs_kernels {

namespace {

template <bool kPrefetch>
uint64_t read(const char* data, int64_t size, int64_t ahead) {
  __m256i sums[4] = {};
  for (int64_t offset = 0; offset < size; offset += 512) {
    const char* block = data + offset;
    for (int half = 0; half < 16; ++half) {
      if (kPrefetch && half % 2 == 0) _mm_prefetch(block + ahead + half * 32, _MM_HINT_T1);
      sums[half % 4] = _mm256_xor_si256(
          sums[half % 4], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + half * 32)));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  return _mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 1) ^
         _mm256_extract_epi64(all, 2) ^ _mm256_extract_epi64(all, 3);
}

}  // namespace

uint64_t read_avx2(const char* data, int64_t size, int64_t ahead) {
  return ahead == 0 ? read<false>(data, size, 0) : read<true>(data, size, ahead);
}

int64_t f32_flops_avx2(int64_t iterations) {
  // Latency 4 or 5 times two a cycle.
  constexpr int kChains = 12;
  // Different starts, unknown to the compiler: equal chains would be computed once.
  __m256 sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_ps(static_cast<float>(iterations + c));
  const __m256 x = _mm256_set1_ps(1.0f);
  const __m256 y = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm256_fmadd_ps(x, y, sums[c]);
    }
  }
  __m256 total = sums[0];
  for (int c = 1; c < kChains; ++c) total = _mm256_add_ps(total, sums[c]);
  const int64_t flops = iterations * kChains * 16;
  // Never true, but the compiler cannot know.
  return _mm256_cvtss_f32(total) == 12345.0f ? flops + 1 : flops;
}

}  // namespace atom::ops::roofs_kernels
