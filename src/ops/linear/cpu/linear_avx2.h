// Inside linear, for files compiled for AVX2: tiles of rows x columns that fit 16 registers, 1 x
// 64, 2 x 32, and up to 6 rows x 16 columns. Weights are expanded in registers, activations when
// they are packed. Everything has internal linkage, so that nothing of it is merged into code for
// lesser processors.
//
// A Step says how a weight is expanded and multiplied: load<i>() makes 8 columns of the i-th of a
// step's kValues, which meets the i-th 4-byte value of the activations. Where all values of a step
// are expanded together, load_pairs() makes 8 columns of all of them, in pairs of bfloat16. Where
// neighbors are expanded together, load_columns<i>() makes the even and the odd ones of 16 columns.
// Where sums of a group are no floats, to_floats() makes them such, and first_sum() is what they
// start from.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "ops/linear/linear_kernels.h"

namespace atom::ops::linear_kernels {
namespace {

// Of 4 bytes, in a row's step of packed activations.
template <typename Step>
constexpr int words_of = Step::kValues;
template <typename Step>
requires requires {
  Step::kWords;
}
constexpr int words_of<Step> = Step::kWords;

// One row has sums in so many registers that weights are loaded where they are used.
template <typename Step, int kValue, int kRows, int kVectors>
inline __attribute__((always_inline)) void one_value(const char* weight,
                                                     const float* x,
                                                     __m256 (&sums)[kRows][kVectors]) {
  if constexpr (kRows == 1) {
    const __m256 broadcast = _mm256_broadcast_ss(x + kValue);
    for (int v = 0; v < kVectors; ++v) {
      const __m256 w = Step::template load<kValue>(weight + v * Step::kWeightVectorSize);
      sums[0][v] = Step::add(sums[0][v], w, broadcast);
    }
  } else {
    __m256 w[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      w[v] = Step::template load<kValue>(weight + v * Step::kWeightVectorSize);
    }
    for (int r = 0; r < kRows; ++r) {
      const __m256 broadcast = _mm256_broadcast_ss(x + r * words_of<Step> + kValue);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Step::add(sums[r][v], w[v], broadcast);
    }
  }
}

template <typename Step>
concept LoadsPairs = requires(const char* weight, __m256i (&pairs)[Step::kValues / 2]) {
  Step::load_pairs(weight, pairs);
};

inline __m256 first_of_pair(__m256i pair) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
}

inline __m256 second_of_pair(__m256i pair) {
  return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(0xffff0000)));
}

template <typename Step, int kRows, int kVectors>
inline __attribute__((always_inline)) void one_step_of_pairs(const char* weight,
                                                             const float* x,
                                                             __m256 (&sums)[kRows][kVectors]) {
  // Vectors at a time, so that the chain of one's sums is no wait.
  constexpr int kTogether = kRows <= 4 ? 2 : 1;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v += kTogether) {
    __m256i pairs[kTogether][Step::kValues / 2];
    for (int i = 0; i < kTogether; ++i) {
      Step::load_pairs(weight + (v + i) * Step::kWeightVectorSize, pairs[i]);
    }
    for (int k = 0; k < Step::kValues; ++k) {
      for (int i = 0; i < kTogether; ++i) {
        const __m256i pair = pairs[i][k / 2];
        const __m256 w = k % 2 == 0 ? first_of_pair(pair) : second_of_pair(pair);
        for (int r = 0; r < kRows; ++r) {
          sums[r][v + i] =
              _mm256_fmadd_ps(w, _mm256_broadcast_ss(x + r * Step::kValues + k), sums[r][v + i]);
        }
      }
    }
  }
}

template <typename Step>
concept LoadsColumns = requires(const char* weight, __m256 (&columns)[2]) {
  Step::template load_columns<0>(weight, columns);
};

// Vectors in pairs, of the even and the odd ones of 16 columns.
template <typename Step, int kValue, int kRows, int kVectors>
inline __attribute__((always_inline)) void one_value_of_columns(const char* weight,
                                                                const float* x,
                                                                __m256 (&sums)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v += 2) {
    __m256 columns[2];
    Step::template load_columns<kValue>(weight + v * Step::kWeightVectorSize, columns);
    for (int r = 0; r < kRows; ++r) {
      const __m256 broadcast = _mm256_broadcast_ss(x + r * words_of<Step> + kValue);
      sums[r][v] = _mm256_fmadd_ps(columns[0], broadcast, sums[r][v]);
      sums[r][v + 1] = _mm256_fmadd_ps(columns[1], broadcast, sums[r][v + 1]);
    }
  }
}

// Two vectors of 16 columns in order as the even and the odd ones, and back.
inline void part_columns(__m256& first, __m256& second) {
  const __m256 even = _mm256_shuffle_ps(first, second, 0x88);
  const __m256 odd = _mm256_shuffle_ps(first, second, 0xdd);
  first = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8));
  second = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8));
}
inline void join_columns(__m256& even, __m256& odd) {
  const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  even = _mm256_permute2f128_ps(low, high, 0x20);
  odd = _mm256_permute2f128_ps(low, high, 0x31);
}

// Values from kValue on.
template <typename Step, int kRows, int kVectors, int kValue = 0>
inline __attribute__((always_inline)) void one_step(const char* weight,
                                                    const float* x,
                                                    __m256 (&sums)[kRows][kVectors]) {
  if constexpr (LoadsPairs<Step>) {
    one_step_of_pairs<Step, kRows, kVectors>(weight, x, sums);
  } else {
    if constexpr (LoadsColumns<Step>) {
      one_value_of_columns<Step, kValue, kRows, kVectors>(weight, x, sums);
    } else {
      one_value<Step, kValue, kRows, kVectors>(weight, x, sums);
    }
    if constexpr (kValue + 1 < Step::kValues) {
      one_step<Step, kRows, kVectors, kValue + 1>(weight, x, sums);
    }
  }
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
  const float* x;
};

template <typename Step, int kRows, int kVectors>
inline __attribute__((always_inline)) void add_steps(Cursor& at,
                                                     int64_t steps,
                                                     const Prefetch& prefetch,
                                                     __m256 (&sums)[kRows][kVectors]) {
  const char* ahead = static_cast<const char*>(prefetch.from);
  for (int64_t step = 0; step < steps; ++step) {
    if (step % kStepUnroll == 0) {
      prefetch_share(prefetch, ahead);
      ahead += prefetch.lines * 64;
    }
    one_step<Step, kRows, kVectors>(at.weight, at.x, sums);
    at.weight += kPanelColumns / 8 * Step::kWeightVectorSize;
    at.x += kRows * words_of<Step>;
  }
}

// Columns [0, 8 kVectors) after `at` and `sums_memory`.
template <typename Step, int kRows, int kVectors>
inline __attribute__((always_inline)) void multiply_columns(Cursor at,
                                                            int64_t steps,
                                                            float* sums_memory,
                                                            const Prefetch& prefetch) {
  __m256 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = _mm256_loadu_ps(sums_memory + r * kPanelColumns + v * 8);
    }
    if constexpr (LoadsColumns<Step>) {
      for (int v = 0; v < kVectors; v += 2) part_columns(sums[r][v], sums[r][v + 1]);
    }
  }
  add_steps<Step, kRows, kVectors>(at, steps, prefetch, sums);
  for (int r = 0; r < kRows; ++r) {
    if constexpr (LoadsColumns<Step>) {
      for (int v = 0; v < kVectors; v += 2) join_columns(sums[r][v], sums[r][v + 1]);
    }
    for (int v = 0; v < kVectors; ++v) {
      _mm256_storeu_ps(sums_memory + r * kPanelColumns + v * 8, sums[r][v]);
    }
  }
}

// The scales of a panel's columns in one group.
inline void read_group_scales(const GroupScales& groups,
                              const char* scales,
                              float (&out)[kPanelColumns]) {
  for (int c = 0; c < kPanelColumns; c += 8) {
    __m256 values;
    if (groups.kind == GroupScales::kE8M0) {
      const __m256i exponents =
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + c)));
      // An exponent of 0 is 2^-127, a subnormal.
      values = _mm256_castsi256_ps(
          _mm256_max_epu32(_mm256_slli_epi32(exponents, 23), _mm256_set1_epi32(0x00400000)));
    } else {
      const auto* floats = reinterpret_cast<const float*>(scales);
      values = groups.kind == GroupScales::kOne ? _mm256_broadcast_ss(floats)
                                                : _mm256_loadu_ps(floats + c);
    }
    _mm256_storeu_ps(out + c, values);
  }
}

// What a group's sums start from, by the row's first step of it.
template <typename Step>
inline __m256 first_sum(const float* x) {
  if constexpr (requires { Step::first_sum(x); }) {
    return Step::first_sum(x);
  } else {
    return _mm256_setzero_ps();
  }
}

// Sums of a group as floats.
template <typename Step>
inline __m256 group_sum(__m256 sum) {
  if constexpr (requires { Step::to_floats(sum); }) {
    return Step::to_floats(sum);
  } else {
    return sum;
  }
}

// What a row's sums of a group are multiplied by beside the scales of the columns.
inline float row_scale(const GroupScales& groups, const float* x_scales, int row) {
  return x_scales == nullptr ? 1.0f : x_scales[row * groups.x_stride];
}

// The sums of one group, scaled, onto `sums_memory`; all of the same columns.
template <typename Step, int kRows, int kVectors>
inline __attribute__((always_inline)) void multiply_group(Cursor at,
                                                          int64_t steps,
                                                          float* sums_memory,
                                                          const Prefetch& prefetch,
                                                          const GroupScales& groups,
                                                          const float* scales,
                                                          const float* x_scales) {
  __m256 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    const __m256 first = first_sum<Step>(at.x + r * words_of<Step>);
    for (int v = 0; v < kVectors; ++v) sums[r][v] = first;
  }
  add_steps<Step, kRows, kVectors>(at, steps, prefetch, sums);
  for (int r = 0; r < kRows; ++r) {
    if constexpr (LoadsColumns<Step>) {
      for (int v = 0; v < kVectors; v += 2) join_columns(sums[r][v], sums[r][v + 1]);
    }
    const __m256 x_scale = _mm256_set1_ps(row_scale(groups, x_scales, r));
    for (int v = 0; v < kVectors; ++v) {
      const __m256 both = _mm256_mul_ps(_mm256_loadu_ps(scales + v * 8), x_scale);
      float* memory = sums_memory + r * kPanelColumns + v * 8;
      _mm256_storeu_ps(memory,
                       _mm256_fmadd_ps(group_sum<Step>(sums[r][v]), both, _mm256_loadu_ps(memory)));
    }
  }
}

constexpr int vectors_of(int rows) {
  return rows == 1 ? 8 : rows == 2 ? 4 : 2;
}

// Splits what a multiplication prefetches among its passes over columns, line after line: memory
// waits while a pass prefetches nothing, and is slower where each prefetches its own columns.
class PassPrefetch {
 public:
  PassPrefetch(const Prefetch& whole, int num_passes)
      : whole_(whole), share_((whole.lines + num_passes - 1) / num_passes) {}

  // Of a pass over `steps` steps; passes are numbered from 0 for each run of steps.
  Prefetch next(int pass, int64_t steps) {
    const int left = whole_.lines - pass * share_;
    const int lines = left < 0 ? 0 : left < share_ ? left : share_;
    const Prefetch prefetch = {from_, lines, whole_.into_l1};
    from_ += (steps + kStepUnroll - 1) / kStepUnroll * lines * 64;
    return prefetch;
  }

 private:
  const Prefetch whole_;
  const int share_;
  const char* from_ = static_cast<const char*>(whole_.from);
};

template <typename Step, int kRows>
void multiply_rows(Cursor at, int64_t steps, float* sums, const Prefetch& prefetch) {
  constexpr int kVectors = vectors_of(kRows);
  constexpr int64_t kStepSize = kPanelColumns / 8 * Step::kWeightVectorSize;
  // So that what the first columns' pass reads is still in the first-level cache for the others'.
  constexpr int64_t kPassSteps = 64;
  PassPrefetch passes(prefetch, 8 / kVectors);
  for (int64_t begin = 0; begin < steps; begin += kPassSteps) {
    const int64_t pass_steps = steps - begin < kPassSteps ? steps - begin : kPassSteps;
    for (int column = 0; column < kPanelColumns; column += kVectors * 8) {
      multiply_columns<Step, kRows, kVectors>(
          {at.weight + begin * kStepSize + column / 8 * Step::kWeightVectorSize,
           at.x + begin * kRows * words_of<Step>},
          pass_steps,
          sums + column,
          passes.next(column / (kVectors * 8), pass_steps));
    }
  }
}

template <typename Step, int kRows>
void multiply_rows_in_groups(
    Cursor at, int64_t steps, float* sums, const Prefetch& prefetch, const GroupScales& groups) {
  constexpr int kVectors = vectors_of(kRows);
  constexpr int64_t kStepSize = kPanelColumns / 8 * Step::kWeightVectorSize;
  const char* scales = static_cast<const char*>(groups.weight);
  const float* x_scales = groups.x;
  PassPrefetch passes(prefetch, 8 / kVectors);
  for (int64_t begin = 0; begin < steps; begin += groups.steps) {
    const int64_t group_steps = steps - begin < groups.steps ? steps - begin : groups.steps;
    float column_scales[kPanelColumns];
    read_group_scales(groups, scales, column_scales);
    for (int column = 0; column < kPanelColumns; column += kVectors * 8) {
      multiply_group<Step, kRows, kVectors>(
          {at.weight + begin * kStepSize + column / 8 * Step::kWeightVectorSize,
           at.x + begin * kRows * words_of<Step>},
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
  kByRows[rows - 1]({static_cast<const char*>(panel), static_cast<const float*>(packed_x)},
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
  kByRows[rows - 1]({static_cast<const char*>(panel), static_cast<const float*>(packed_x)},
                    steps,
                    sums,
                    prefetch,
                    groups);
}

}  // namespace
}  // namespace atom::ops::linear_kernels
