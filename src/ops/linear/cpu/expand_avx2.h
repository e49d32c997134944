// Inside linear, for files compiled for AVX2: weights expanded to float32 in memory, for the many
// rows that read them from a cache. Everything has internal linkage, as in linear_avx2.h.
#pragma once

#include "ops/linear/cpu/linear_avx2.h"

namespace atom::ops::linear_kernels {
namespace {

struct Float32Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(weight));
  }
  static inline __m256 add(__m256 sum, __m256 weight, __m256 x) {
    return _mm256_fmadd_ps(weight, x, sum);
  }
};

// 8 columns of a step of a panel as as many steps in float32 as it has values.
template <typename Step, int kValue = 0>
inline __attribute__((always_inline)) void expand_vector(const char* weight, float* out) {
  if constexpr (LoadsPairs<Step>) {
    __m256i pairs[Step::kValues / 2];
    Step::load_pairs(weight, pairs);
    for (int k = 0; k < Step::kValues; ++k) {
      const __m256 w = k % 2 == 0 ? first_of_pair(pairs[k / 2]) : second_of_pair(pairs[k / 2]);
      _mm256_store_ps(out + k * kPanelColumns, w);
    }
  } else {
    _mm256_store_ps(out, Step::template load<kValue>(weight));
    if constexpr (kValue + 1 < Step::kValues) {
      expand_vector<Step, kValue + 1>(weight, out + kPanelColumns);
    }
  }
}

template <typename Step, int kValue = 0>
inline __attribute__((always_inline)) void expand_columns(const char* weight, float* out) {
  __m256 columns[2];
  Step::template load_columns<kValue>(weight, columns);
  join_columns(columns[0], columns[1]);
  _mm256_store_ps(out, columns[0]);
  _mm256_store_ps(out + 8, columns[1]);
  if constexpr (kValue + 1 < Step::kValues) {
    expand_columns<Step, kValue + 1>(weight, out + kPanelColumns);
  }
}

template <typename Step>
void expand_steps(const void* panel, int64_t steps, void* out) {
  constexpr int64_t kStepSize = kPanelColumns / 8 * Step::kWeightVectorSize;
  const char* weight = static_cast<const char*>(panel);
  float* to = static_cast<float*>(out);
  for (int64_t step = 0; step < steps; ++step) {
    if constexpr (LoadsColumns<Step>) {
      for (int v = 0; v < kPanelColumns / 8; v += 2) {
        expand_columns<Step>(weight + v * Step::kWeightVectorSize, to + v * 8);
      }
    } else {
      for (int v = 0; v < kPanelColumns / 8; ++v) {
        expand_vector<Step>(weight + v * Step::kWeightVectorSize, to + v * 8);
      }
    }
    weight += kStepSize;
    to += Step::kValues * kPanelColumns;
  }
}

}  // namespace
}  // namespace atom::ops::linear_kernels
