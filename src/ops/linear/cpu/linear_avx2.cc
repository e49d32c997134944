// Tiles of rows x columns that fit 16 registers: 1 x 64, 2 x 32, and up to 6 rows x 16 columns.
// bfloat16 and float16 weights are expanded to float32 in registers, activations when packed.
#include <immintrin.h>
#include <string.h>

#include "ops/linear/linear_kernels.h"

namespace atom::ops::linear_kernels {
namespace {

// The kHalf-th k of a step, for 8 columns.
struct BFloat16Step {
  static constexpr int kValues = 2;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    if (kHalf == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(0xffff0000)));
  }
};

// 2^-8 of the values: float16 has the code's bits in it. The codes of NaN become +-480.
struct Float8Step {
  static constexpr int kValues = 2;
  static constexpr int64_t kWeightVectorSize = 16;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    __m128i pair = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weight));
    if (kHalf == 0) pair = _mm_slli_epi16(pair, 8);
    const __m128i half = _mm_and_si128(_mm_srai_epi16(pair, 1), _mm_set1_epi16(-0x4080));
    return _mm256_cvtph_ps(half);
  }
};

struct Float16Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 16;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight)));
  }
};

struct Float32Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(weight));
  }
};

template <typename Step, int kHalf, int kRows, int kVectors>
inline __attribute__((always_inline)) void one_value(const char* weight,
                                                     const float* x,
                                                     __m256 (&sums)[kRows][kVectors]) {
  __m256 w[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    w[v] = Step::template load<kHalf>(weight + v * Step::kWeightVectorSize);
  }
  for (int r = 0; r < kRows; ++r) {
    const __m256 broadcast = _mm256_broadcast_ss(x + r * Step::kValues + kHalf);
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = _mm256_fmadd_ps(w[v], broadcast, sums[r][v]);
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

// Columns [0, 8 kVectors) after `weight` and `sums_memory`.
template <typename Step, int kRows, int kVectors>
inline __attribute__((always_inline)) void multiply_columns(
    const char* weight, const float* x, int64_t steps, float* sums_memory, Prefetch prefetch) {
  constexpr int64_t kWeightStepSize = kPanelColumns / 8 * Step::kWeightVectorSize;
  __m256 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = _mm256_loadu_ps(sums_memory + r * kPanelColumns + v * 8);
    }
  }
  const char* ahead = static_cast<const char*>(prefetch.from);
  for (int64_t step = 0; step < steps; ++step) {
    if (step % kStepUnroll == 0) {
      prefetch_share(prefetch, ahead);
      ahead += prefetch.lines * 64;
    }
    one_value<Step, 0, kRows, kVectors>(weight, x, sums);
    if constexpr (Step::kValues == 2) one_value<Step, 1, kRows, kVectors>(weight, x, sums);
    weight += kWeightStepSize;
    x += kRows * Step::kValues;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      _mm256_storeu_ps(sums_memory + r * kPanelColumns + v * 8, sums[r][v]);
    }
  }
}

template <typename Step, int kRows>
void multiply_rows(
    const char* weight, const float* x, int64_t steps, float* sums, Prefetch prefetch) {
  constexpr int kVectors = kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
  constexpr int64_t kStepSize = kPanelColumns / 8 * Step::kWeightVectorSize;
  // So that what the first columns' pass reads is still in the first-level cache for the others'.
  constexpr int64_t kPassSteps = 64;
  for (int64_t begin = 0; begin < steps; begin += kPassSteps) {
    const int64_t pass_steps = steps - begin < kPassSteps ? steps - begin : kPassSteps;
    const char* ahead =
        static_cast<const char*>(prefetch.from) + begin / kStepUnroll * prefetch.lines * 64;
    for (int column = 0; column < kPanelColumns; column += kVectors * 8) {
      multiply_columns<Step, kRows, kVectors>(
          weight + begin * kStepSize + column / 8 * Step::kWeightVectorSize,
          x + begin * kRows * Step::kValues,
          pass_steps,
          sums + column,
          {ahead, column == 0 ? prefetch.lines : 0, prefetch.into_l1});
    }
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
  kByRows[rows - 1](
      static_cast<const char*>(panel), static_cast<const float*>(packed_x), steps, sums, prefetch);
}

struct ReadBFloat16 {
  using Stored = uint16_t;
  static inline float read(uint16_t value) {
    const uint32_t bits = static_cast<uint32_t>(value) << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
  }
};

struct ReadFloat16 {
  using Stored = uint16_t;
  static inline float read(uint16_t value) { return _cvtsh_ss(value); }
};

struct ReadFloat8 {
  using Stored = uint8_t;
  static inline float read(uint8_t code) {
    if ((code & 0x7f) == 0x7f) return __builtin_nanf("");
    return 256.0f * _cvtsh_ss(static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7));
  }
};

struct ReadFloat32 {
  using Stored = float;
  static inline float read(float value) { return value; }
};

// kValues floats a row and step, zero past in_features.
template <typename Read, int kValues>
void pack_x(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const typename Read::Stored* from = reinterpret_cast<const typename Read::Stored*>(
        static_cast<const char*>(x) + r * row_stride);
    float* to = static_cast<float*>(packed) + r * kValues;
    for (int64_t k = 0; k < in_features; ++k) {
      to[k / kValues * rows * kValues + k % kValues] = Read::read(from[k]);
    }
    if (in_features % kValues != 0) to[in_features / kValues * rows * kValues + 1] = 0.0f;
  }
}

// Rounding stores of 8 values.
struct StoreFloat32 {
  static constexpr int64_t kSize = 4;
  static inline void store(char* y, __m256 value) {
    _mm256_storeu_ps(reinterpret_cast<float*>(y), value);
  }
};

struct StoreFloat16 {
  static constexpr int64_t kSize = 2;
  static inline void store(char* y, __m256 value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y),
                     _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct StoreBFloat16 {
  static constexpr int64_t kSize = 2;
  static inline void store(char* y, __m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    const __m256i chosen = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan));
    const __m256i high = _mm256_srli_epi32(chosen, 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_castsi256_si128(packed));
  }
};

template <typename Store>
void store_rows(
    const float* sums, int rows, int columns, const float* bias, void* y, int64_t row_stride) {
  for (int r = 0; r < rows; ++r) {
    char* to = static_cast<char*>(y) + r * row_stride;
    for (int c = 0; c < columns; c += 8) {
      const int count = columns - c < 8 ? columns - c : 8;
      __m256 value = _mm256_loadu_ps(sums + r * kPanelColumns + c);
      if (bias != nullptr) {
        float padded[8] = {};
        memcpy(padded, bias + c, count * sizeof(float));
        value = _mm256_add_ps(value, _mm256_loadu_ps(padded));
      }
      char whole[8 * Store::kSize];
      Store::store(whole, value);
      memcpy(to + c * Store::kSize, whole, count * Store::kSize);
    }
  }
}

}  // namespace

const KernelTable kAvx2BFloat16 = {kPanelColumns / 8 * BFloat16Step::kWeightVectorSize,
                                   8,
                                   1,
                                   pack_x<ReadBFloat16, 2>,
                                   multiply<BFloat16Step>,
                                   store_rows<StoreFloat32>,
                                   store_rows<StoreBFloat16>};
const KernelTable kAvx2Float16 = {kPanelColumns / 8 * Float16Step::kWeightVectorSize,
                                  4,
                                  1,
                                  pack_x<ReadFloat16, 1>,
                                  multiply<Float16Step>,
                                  store_rows<StoreFloat32>,
                                  store_rows<StoreFloat16>};
const KernelTable kAvx2Float32 = {kPanelColumns / 8 * Float32Step::kWeightVectorSize,
                                  4,
                                  1,
                                  pack_x<ReadFloat32, 1>,
                                  multiply<Float32Step>,
                                  store_rows<StoreFloat32>,
                                  store_rows<StoreFloat32>};

namespace {

template <typename Read, typename Store>
constexpr KernelTable float8_table() {
  return {kPanelColumns / 8 * Float8Step::kWeightVectorSize,
          8,
          1,
          pack_x<Read, 2>,
          multiply<Float8Step>,
          store_rows<StoreFloat32>,
          store_rows<Store>,
          256.0f};
}

}  // namespace

const Float8Tables kAvx2Float8 = {float8_table<ReadBFloat16, StoreBFloat16>(),
                                  float8_table<ReadFloat16, StoreFloat16>(),
                                  float8_table<ReadFloat32, StoreFloat32>(),
                                  float8_table<ReadFloat8, StoreBFloat16>(),
                                  float8_table<ReadFloat8, StoreFloat16>()};

}  // namespace atom::ops::linear_kernels
