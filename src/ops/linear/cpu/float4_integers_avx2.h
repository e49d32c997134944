// Inside linear, for files compiled for AVX2: FP4 weights times FP4 activations in integers. Twice
// a value of FP4 is an integer of up to 12, so that sums of a group are exact in 16 bits, and the
// same as in floating point. Everything has internal linkage, as in linear_avx2.h.
#pragma once

#include "ops/linear/cpu/linear_avx2.h"

namespace atom::ops::linear_kernels {
namespace {

// What a vector of 8 columns, a panel and a row have of a step of 8 k.
constexpr int64_t kFloat4VectorSize = 32;
constexpr int64_t kFloat4StepSize = kPanelColumns / 8 * kFloat4VectorSize;
constexpr int64_t kFloat4XSize = 8;
// A byte for each code without its sign.
constexpr uint64_t kTwiceMagnitudes = 0x0c08060403020100;

// Activations in bytes: those that meet the lower halves of a column's 4 bytes, then the others.
inline void pack_float4_integers(
    const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  static constexpr int8_t kPlaces[] = {0, 2, 4, 6, 1, 3, 5, 7};  // of k, by place in a step
  for (int r = 0; r < rows; ++r) {
    const uint8_t* from = static_cast<const uint8_t*>(x) + r * row_stride;
    int8_t* to = static_cast<int8_t*>(packed) + r * kFloat4XSize;
    for (int64_t begin = 0; begin < in_features; begin += kFloat4XSize, to += rows * kFloat4XSize) {
      for (int place = 0; place < kFloat4XSize; ++place) {
        const int64_t k = begin + kPlaces[place];
        const int code = k < in_features ? from[k / 2] >> (k % 2 * 4) & 15 : 0;
        const int magnitude = static_cast<int>(kTwiceMagnitudes >> code % 8 * 8 & 0xff);
        to[place % 2 * 4 + place / 2] = static_cast<int8_t>(code < 8 ? magnitude : -magnitude);
      }
    }
  }
}

// Sums are of two products each, in 16 bits.
template <int kRows, int kVectors>
inline __attribute__((always_inline)) void add_float4_step(const char* weight,
                                                           const int32_t* x,
                                                           __m256i (&sums)[kRows][kVectors]) {
  const __m256i twice = _mm256_set1_epi64x(static_cast<int64_t>(kTwiceMagnitudes));
  const __m256i mask = _mm256_set1_epi8(15);
  for (int v = 0; v < kVectors; ++v) {
    const __m256i high_codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight) + v);
    const __m256i low_codes = _mm256_slli_epi32(high_codes, 4);
    const __m256i low = _mm256_shuffle_epi8(twice, _mm256_and_si256(high_codes, mask));
    const __m256i high =
        _mm256_shuffle_epi8(twice, _mm256_and_si256(_mm256_srli_epi32(high_codes, 4), mask));
    for (int r = 0; r < kRows; ++r) {
      // A byte of codes has the sign of its upper one, and is 0 only where that is.
      const __m256i x_low = _mm256_sign_epi8(_mm256_set1_epi32(x[r * 2]), low_codes);
      const __m256i x_high = _mm256_sign_epi8(_mm256_set1_epi32(x[r * 2 + 1]), high_codes);
      const __m256i products =
          _mm256_add_epi16(_mm256_maddubs_epi16(low, x_low), _mm256_maddubs_epi16(high, x_high));
      sums[r][v] = _mm256_add_epi16(sums[r][v], products);
    }
  }
}

// The sums of one group of up to 32 k, four times as large, scaled, onto `sums_memory`; all of the
// same columns.
template <int kRows, int kVectors>
inline __attribute__((always_inline)) void multiply_float4_group(const char* weight,
                                                                 const int32_t* x,
                                                                 int64_t steps,
                                                                 float* sums_memory,
                                                                 const Prefetch& prefetch,
                                                                 const GroupScales& groups,
                                                                 const float* scales,
                                                                 const float* x_scales) {
  __m256i sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_setzero_si256();
  }
  const char* ahead = static_cast<const char*>(prefetch.from);
  for (int64_t step = 0; step < steps; ++step) {
    if (step % kStepUnroll == 0) {
      prefetch_share(prefetch, ahead);
      ahead += prefetch.lines * 64;
    }
    add_float4_step<kRows, kVectors>(weight, x, sums);
    weight += kFloat4StepSize;
    x += kRows * 2;
  }
  for (int r = 0; r < kRows; ++r) {
    const __m256 x_scale = _mm256_set1_ps(row_scale(groups, x_scales, r));
    for (int v = 0; v < kVectors; ++v) {
      const __m256i pairs = _mm256_madd_epi16(sums[r][v], _mm256_set1_epi16(1));
      const __m256 both = _mm256_mul_ps(_mm256_loadu_ps(scales + v * 8), x_scale);
      float* memory = sums_memory + r * kPanelColumns + v * 8;
      _mm256_storeu_ps(memory,
                       _mm256_fmadd_ps(_mm256_cvtepi32_ps(pairs), both, _mm256_loadu_ps(memory)));
    }
  }
}

template <int kRows>
void multiply_float4_rows(const char* weight,
                          const int32_t* x,
                          int64_t steps,
                          float* sums,
                          const Prefetch& prefetch,
                          const GroupScales& groups) {
  constexpr int kVectors = vectors_of(kRows);
  const char* scales = static_cast<const char*>(groups.weight);
  const float* x_scales = groups.x;
  PassPrefetch passes(prefetch, 8 / kVectors);
  for (int64_t begin = 0; begin < steps; begin += groups.steps) {
    const int64_t group_steps = steps - begin < groups.steps ? steps - begin : groups.steps;
    float column_scales[kPanelColumns];
    read_group_scales(groups, scales, column_scales);
    for (int column = 0; column < kPanelColumns; column += kVectors * 8) {
      multiply_float4_group<kRows, kVectors>(
          weight + begin * kFloat4StepSize + column / 8 * kFloat4VectorSize,
          x + begin * kRows * 2,
          group_steps,
          sums + column,
          passes.next(column / (kVectors * 8), group_steps),
          groups,
          column_scales + column,
          x_scales);
    }
    scales += groups.weight_stride;
    if (x_scales != nullptr) ++x_scales;
  }
}

inline void multiply_float4_in_groups(int rows,
                                      const void* panel,
                                      const void* packed_x,
                                      int64_t steps,
                                      float* sums,
                                      Prefetch prefetch,
                                      const GroupScales& groups) {
  static constexpr decltype(&multiply_float4_rows<1>) kByRows[kMaxTileRows] = {
      multiply_float4_rows<1>,
      multiply_float4_rows<2>,
      multiply_float4_rows<3>,
      multiply_float4_rows<4>,
      multiply_float4_rows<5>,
      multiply_float4_rows<6>};
  kByRows[rows - 1](static_cast<const char*>(panel),
                    static_cast<const int32_t*>(packed_x),
                    steps,
                    sums,
                    prefetch,
                    groups);
}

}  // namespace
}  // namespace atom::ops::linear_kernels
