// Inside linear, for files compiled for AVX-512: tiles of up to 6 rows x 64 columns. 24 sums in
// registers, 4 weight vectors, and the broadcast of an activation, so that 10 loads feed 24
// multiply-adds. Everything has internal linkage, so that nothing of it is merged into code for
// lesser processors.
//
// A Step says how a weight is expanded and multiplied: load<i>() makes of a step, of kStepSize
// bytes, the vectors that meet the i-th 4-byte value of the activations, of kValues. A vector is 16
// columns, in ascending order unless kInterleaves says otherwise.
#pragma once

// gcc 12 takes the undefined registers that its own intrinsics start from for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <string.h>

#include "ops/linear/cpu/pack_floats.h"
#include "ops/linear/linear_kernels.h"

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace atom::ops::linear_kernels {
namespace {

constexpr int kVectors = kPanelColumns / 16;

inline __m512 add_float32(__m512 sum, __m512i weight, __m512i x) {
  return _mm512_fmadd_ps(_mm512_castsi512_ps(weight), _mm512_castsi512_ps(x), sum);
}

inline __m512 add_bfloat16_pairs(__m512 sum, __m512i weight, __m512i x) {
  return _mm512_dpbf16_ps(sum, (__m512bh)weight, (__m512bh)x);
}

// Of two vectors, of which one holds the even quarters of 32 columns and the other the odd ones.
inline void order_columns(__m512& first, __m512& second) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  const __m512 evens = first;
  first = _mm512_permutex2var_ps(evens, low, second);
  second = _mm512_permutex2var_ps(evens, high, second);
}

// The inverse.
inline void interleave_columns(__m512& first, __m512& second) {
  const __m512i evens = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(4));
  const __m512 low = first;
  first = _mm512_permutex2var_ps(low, evens, second);
  second = _mm512_permutex2var_ps(low, odds, second);
}

template <typename Step>
inline __attribute__((always_inline)) void order_columns(__m512 (&vectors)[kVectors]) {
  if constexpr (Step::kInterleaves) {
    for (int v = 0; v < kVectors; v += 2) order_columns(vectors[v], vectors[v + 1]);
  }
}

template <typename Step, int kValue, int kRows>
inline __attribute__((always_inline)) void one_value(const char* weight,
                                                     const int32_t* x,
                                                     __m512 (&sums)[kRows][kVectors]) {
  __m512i w[kVectors];
  Step::template load<kValue>(weight, w);
  for (int r = 0; r < kRows; ++r) {
    const __m512i broadcast = _mm512_set1_epi32(x[r * Step::kValues + kValue]);
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Step::add(sums[r][v], w[v], broadcast);
  }
}

// Values from kValue on.
template <typename Step, int kRows, int kValue = 0>
inline __attribute__((always_inline)) void one_step(const char* weight,
                                                    const int32_t* x,
                                                    __m512 (&sums)[kRows][kVectors]) {
  one_value<Step, kValue, kRows>(weight, x, sums);
  if constexpr (kValue + 1 < Step::kValues) one_step<Step, kRows, kValue + 1>(weight, x, sums);
}

// Always inline: gcc takes a function that only prefetches for one without effect and drops the
// call.
inline __attribute__((always_inline)) void prefetch_share(const Prefetch& prefetch,
                                                          const char* from) {
  if (prefetch.into_l1) {
    for (int line = 0; line < prefetch.lines; ++line) _mm_prefetch(from + line * 64, _MM_HINT_T0);
  } else {
    for (int line = 0; line < prefetch.lines; ++line) _mm_prefetch(from + line * 64, _MM_HINT_T1);
  }
}

// Where a multiplication stands.
struct Cursor {
  const char* weight;
  const int32_t* x;
  const char* ahead;
};

template <typename Step, int kRows>
inline __attribute__((always_inline)) void add_steps(Cursor& at,
                                                     int64_t steps,
                                                     const Prefetch& prefetch,
                                                     __m512 (&sums)[kRows][kVectors]) {
  constexpr int64_t kWeightStepSize = Step::kStepSize;
  int64_t step = 0;
  for (; step + kStepUnroll <= steps; step += kStepUnroll) {
    prefetch_share(prefetch, at.ahead);
    at.ahead += prefetch.lines * 64;
    for (int u = 0; u < kStepUnroll; ++u) {
      one_step<Step, kRows>(
          at.weight + u * kWeightStepSize, at.x + u * kRows * Step::kValues, sums);
    }
    at.weight += kStepUnroll * kWeightStepSize;
    at.x += kStepUnroll * kRows * Step::kValues;
  }
  for (; step < steps; ++step) {
    one_step<Step, kRows>(at.weight, at.x, sums);
    at.weight += kWeightStepSize;
    at.x += kRows * Step::kValues;
  }
}

template <typename Step, int kRows>
void multiply_rows(Cursor at, int64_t steps, float* sums_memory, const Prefetch& prefetch) {
  __m512 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = _mm512_loadu_ps(sums_memory + r * kPanelColumns + v * 16);
    }
    if constexpr (Step::kInterleaves) {
      for (int v = 0; v < kVectors; v += 2) interleave_columns(sums[r][v], sums[r][v + 1]);
    }
  }
  add_steps<Step, kRows>(at, steps, prefetch, sums);
  for (int r = 0; r < kRows; ++r) {
    order_columns<Step>(sums[r]);
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(sums_memory + r * kPanelColumns + v * 16, sums[r][v]);
    }
  }
}

// The scales of 16 columns in one group.
inline __m512 group_scales(const GroupScales& groups, const char* scales, int vector) {
  switch (groups.kind) {
    case GroupScales::kOne: {
      float scale;
      memcpy(&scale, scales, sizeof(scale));
      return _mm512_set1_ps(scale);
    }
    case GroupScales::kFloat32:
      return _mm512_loadu_ps(scales + vector * 64);
    default: {
      const __m512i exponents = _mm512_cvtepu8_epi32(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + vector * 16)));
      // An exponent of 0 is 2^-127, a subnormal.
      const __m512i bits =
          _mm512_max_epu32(_mm512_slli_epi32(exponents, 23), _mm512_set1_epi32(0x00400000));
      return _mm512_castsi512_ps(bits);
    }
  }
}

template <typename Step, int kRows>
void multiply_rows_in_groups(Cursor at,
                             int64_t steps,
                             float* sums_memory,
                             const Prefetch& prefetch,
                             const GroupScales& groups) {
  const char* scales = static_cast<const char*>(groups.weight);
  const float* x_scales = groups.x;
  for (int64_t left = steps; left > 0; left -= groups.steps) {
    __m512 sums[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_ps();
    }
    add_steps<Step, kRows>(at, left < groups.steps ? left : groups.steps, prefetch, sums);
    for (int r = 0; r < kRows; ++r) order_columns<Step>(sums[r]);
    for (int v = 0; v < kVectors; ++v) {
      const __m512 scale = group_scales(groups, scales, v);
      for (int r = 0; r < kRows; ++r) {
        const __m512 both =
            x_scales == nullptr
                ? scale
                : _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[r * groups.x_stride]));
        float* memory = sums_memory + r * kPanelColumns + v * 16;
        _mm512_storeu_ps(memory, _mm512_fmadd_ps(sums[r][v], both, _mm512_loadu_ps(memory)));
      }
    }
    scales += groups.weight_stride;
    if (x_scales != nullptr) ++x_scales;
  }
}

template <typename Step>
void multiply(int rows,
              const void* panel,
              const void* packed_x,
              int64_t steps,
              float* sums,
              Prefetch prefetch) {
  static constexpr decltype(&multiply_rows<Step, 1>) kByRows[kMaxTileRows] = {
      multiply_rows<Step, 1>,
      multiply_rows<Step, 2>,
      multiply_rows<Step, 3>,
      multiply_rows<Step, 4>,
      multiply_rows<Step, 5>,
      multiply_rows<Step, 6>};
  kByRows[rows - 1]({static_cast<const char*>(panel),
                     static_cast<const int32_t*>(packed_x),
                     static_cast<const char*>(prefetch.from)},
                    steps,
                    sums,
                    prefetch);
}

template <typename Step>
void multiply_in_groups(int rows,
                        const void* panel,
                        const void* packed_x,
                        int64_t steps,
                        float* sums,
                        Prefetch prefetch,
                        const GroupScales& groups) {
  static constexpr decltype(&multiply_rows_in_groups<Step, 1>) kByRows[kMaxTileRows] = {
      multiply_rows_in_groups<Step, 1>,
      multiply_rows_in_groups<Step, 2>,
      multiply_rows_in_groups<Step, 3>,
      multiply_rows_in_groups<Step, 4>,
      multiply_rows_in_groups<Step, 5>,
      multiply_rows_in_groups<Step, 6>};
  kByRows[rows - 1]({static_cast<const char*>(panel),
                     static_cast<const int32_t*>(packed_x),
                     static_cast<const char*>(prefetch.from)},
                    steps,
                    sums,
                    prefetch,
                    groups);
}

// Steps of a panel as the vectors that load() makes of them, columns ascending.
template <typename Step, int kValue = 0>
inline __attribute__((always_inline)) void expand_step(const char* weight, float* out) {
  __m512i loaded[kVectors];
  Step::template load<kValue>(weight, loaded);
  __m512 vectors[kVectors];
  for (int v = 0; v < kVectors; ++v) vectors[v] = _mm512_castsi512_ps(loaded[v]);
  order_columns<Step>(vectors);
  for (int v = 0; v < kVectors; ++v) _mm512_store_ps(out + v * 16, vectors[v]);
  if constexpr (kValue + 1 < Step::kValues) {
    expand_step<Step, kValue + 1>(weight, out + kPanelColumns);
  }
}

template <typename Step>
void expand_steps(const void* panel, int64_t steps, void* out) {
  const char* weight = static_cast<const char*>(panel);
  float* to = static_cast<float*>(out);
  for (int64_t step = 0; step < steps; ++step) {
    expand_step<Step>(weight + step * Step::kStepSize, to + step * Step::kValues * kPanelColumns);
  }
}

// What lies in memory as it is multiplied, 16 columns a vector.
struct WholeStep {
  static constexpr int kValues = 1;
  static constexpr int64_t kStepSize = 64 * kVectors;
  static constexpr bool kInterleaves = false;
  template <int>
  static inline void load(const char* weight, __m512i (&w)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) w[v] = _mm512_loadu_si512(weight + v * 64);
  }
};

struct BFloat16Step : WholeStep {
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return add_bfloat16_pairs(sum, weight, x);
  }
};

// Words of `num_rows` rows side by side, every `stride` words; they are 1, 2 or 4 rows.
inline void interleave_words(
    const char* x, int64_t row_stride, int num_rows, int64_t words, char* out, int stride) {
  const int64_t step = int64_t{4} * stride;
  int64_t i = 0;
  if (num_rows == 4) {
    for (; i + 4 <= words; i += 4) {
      __m128 block[4];
      for (int r = 0; r < 4; ++r) {
        block[r] = _mm_loadu_ps(reinterpret_cast<const float*>(x + r * row_stride + i * 4));
      }
      _MM_TRANSPOSE4_PS(block[0], block[1], block[2], block[3]);
      for (int s = 0; s < 4; ++s) {
        _mm_storeu_ps(reinterpret_cast<float*>(out + (i + s) * step), block[s]);
      }
    }
  } else if (num_rows == 2) {
    for (; i + 2 <= words; i += 2) {
      const __m128i pairs =
          _mm_unpacklo_epi32(_mm_loadu_si64(x + i * 4), _mm_loadu_si64(x + row_stride + i * 4));
      _mm_storeu_si64(out + i * step, pairs);
      _mm_storeu_si64(out + (i + 1) * step, _mm_srli_si128(pairs, 8));
    }
  }
  for (; i < words; ++i) {
    for (int r = 0; r < num_rows; ++r)
      memcpy(out + i * step + r * 4, x + r * row_stride + i * 4, 4);
  }
}

// 4-byte steps as they lie in memory; the last, if incomplete, ends in zeros.
inline void pack_words(
    const void* x, int64_t row_stride, int rows, int64_t row_size, void* packed) {
  const int64_t words = row_size / 4;
  for (int r = 0; r < rows;) {
    const int group = rows - r >= 4 ? 4 : rows - r >= 2 ? 2 : 1;
    const char* from = static_cast<const char*>(x) + r * row_stride;
    char* to = static_cast<char*>(packed) + r * 4;
    interleave_words(from, row_stride, group, words, to, rows);
    for (int g = 0; g < group && row_size % 4 != 0; ++g) {
      char* tail = to + words * rows * 4 + g * 4;
      memset(tail, 0, 4);
      memcpy(tail, from + g * row_stride + words * 4, row_size % 4);
    }
    r += group;
  }
}

inline void pack_bfloat16(
    const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  pack_words(x, row_stride, rows, in_features * 2, packed);
}

}  // namespace
}  // namespace atom::ops::linear_kernels
