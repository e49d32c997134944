// Tiles of up to 6 rows x 64 columns: 24 sums in registers, 4 weight vectors, and the broadcast of
// an activation, so that 10 loads feed 24 multiply-adds.
#include <immintrin.h>
#include <string.h>

#include "ops/linear/linear_kernels.h"

// gcc 12 warns of its own _mm512_undefined_ps().
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace atom::ops::linear_kernels {
namespace {

constexpr int kVectors = kPanelColumns / 16;

// 32 codes of FP8 as bfloat16. The codes of NaN become +-480.
inline __m512i expand_float8(__m256i codes) {
  // The sign lands in its place, exponent and mantissa end in theirs, 120 below in the exponent.
  const __m512i wide = _mm512_cvtepi8_epi16(codes);
  const __m512i moved =
      _mm512_and_si512(_mm512_slli_epi16(wide, 4), _mm512_set1_epi16(static_cast<int16_t>(0x87f0)));
  const __m512i normal = _mm512_add_epi16(moved, _mm512_set1_epi16(120 << 7));
  // Subnormals, m * 2^-9, from a table: by the sign bit and m.
  const __m512i table = _mm512_castsi256_si512(_mm256_setr_epi16(0,
                                                                 0x3b00,
                                                                 0x3b80,
                                                                 0x3bc0,
                                                                 0x3c00,
                                                                 0x3c20,
                                                                 0x3c40,
                                                                 0x3c60,
                                                                 static_cast<int16_t>(0x8000),
                                                                 static_cast<int16_t>(0xbb00),
                                                                 static_cast<int16_t>(0xbb80),
                                                                 static_cast<int16_t>(0xbbc0),
                                                                 static_cast<int16_t>(0xbc00),
                                                                 static_cast<int16_t>(0xbc20),
                                                                 static_cast<int16_t>(0xbc40),
                                                                 static_cast<int16_t>(0xbc60)));
  const __mmask32 subnormal = _mm512_testn_epi16_mask(wide, _mm512_set1_epi16(0x78));
  // Of a negative code the bit above m is the sign: the exponent's is 0.
  const __m512i index =
      _mm512_or_si512(_mm512_and_si512(wide, _mm512_set1_epi16(7)),
                      _mm512_and_si512(_mm512_srli_epi16(wide, 12), _mm512_set1_epi16(8)));
  return _mm512_mask_permutexvar_epi16(normal, subnormal, index, table);
}

// One 4-byte value a row and step: two bfloat16 or one float32.
struct BFloat16Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 64;
  template <int>
  static inline __m512i load(const char* weight) {
    return _mm512_loadu_si512(weight);
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return _mm512_dpbf16_ps(sum, (__m512bh)weight, (__m512bh)x);
  }
};

struct Float32Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 64;
  template <int>
  static inline __m512i load(const char* weight) {
    return _mm512_loadu_si512(weight);
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(weight), _mm512_castsi512_ps(x), sum);
  }
};

struct Float16Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int>
  static inline __m512i load(const char* weight) {
    return _mm512_castps_si512(
        _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight))));
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return Float32Step::add(sum, weight, x);
  }
};

// Pairs of FP8 as pairs of bfloat16.
struct Float8Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int>
  static inline __m512i load(const char* weight) {
    return expand_float8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight)));
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return BFloat16Step::add(sum, weight, x);
  }
};

// The kHalf-th of pairs of FP8 as float32, 2^-8 of its value: float16 has the code's bits in it.
struct Float8HalfStep {
  static constexpr int kValues = 2;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int kHalf>
  static inline __m512i load(const char* weight) {
    __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    if (kHalf == 0) pair = _mm256_slli_epi16(pair, 8);
    const __m256i half = _mm256_and_si256(_mm256_srai_epi16(pair, 1), _mm256_set1_epi16(-0x4080));
    return _mm512_castps_si512(_mm512_cvtph_ps(half));
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return Float32Step::add(sum, weight, x);
  }
};

template <typename Step, int kHalf, int kRows>
inline __attribute__((always_inline)) void one_value(const char* weight,
                                                     const int32_t* x,
                                                     __m512 (&sums)[kRows][kVectors]) {
  __m512i w[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    w[v] = Step::template load<kHalf>(weight + v * Step::kWeightVectorSize);
  }
  for (int r = 0; r < kRows; ++r) {
    const __m512i broadcast = _mm512_set1_epi32(x[r * Step::kValues + kHalf]);
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Step::add(sums[r][v], w[v], broadcast);
  }
}

template <typename Step, int kRows>
inline __attribute__((always_inline)) void one_step(const char* weight,
                                                    const int32_t* x,
                                                    __m512 (&sums)[kRows][kVectors]) {
  one_value<Step, 0, kRows>(weight, x, sums);
  if constexpr (Step::kValues == 2) one_value<Step, 1, kRows>(weight, x, sums);
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

template <typename Step, int kRows>
void multiply_rows(
    const char* weight, const int32_t* x, int64_t steps, float* sums_memory, Prefetch prefetch) {
  constexpr int64_t kWeightStepSize = kVectors * Step::kWeightVectorSize;
  __m512 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = _mm512_loadu_ps(sums_memory + r * kPanelColumns + v * 16);
    }
  }
  const char* ahead = static_cast<const char*>(prefetch.from);
  int64_t step = 0;
  for (; step + kStepUnroll <= steps; step += kStepUnroll) {
    prefetch_share(prefetch, ahead);
    ahead += prefetch.lines * 64;
    for (int u = 0; u < kStepUnroll; ++u) {
      one_step<Step, kRows>(weight + u * kWeightStepSize, x + u * kRows * Step::kValues, sums);
    }
    weight += kStepUnroll * kWeightStepSize;
    x += kStepUnroll * kRows * Step::kValues;
  }
  for (; step < steps; ++step) {
    one_step<Step, kRows>(weight, x, sums);
    weight += kWeightStepSize;
    x += kRows * Step::kValues;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(sums_memory + r * kPanelColumns + v * 16, sums[r][v]);
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
  kByRows[rows - 1](static_cast<const char*>(panel),
                    static_cast<const int32_t*>(packed_x),
                    steps,
                    sums,
                    prefetch);
}

// Words of `num_rows` rows side by side, every `stride` words; they are 1, 2 or 4 rows.
void interleave_words(
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
void pack_words(const void* x, int64_t row_stride, int rows, int64_t row_size, void* packed) {
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

void pack_bfloat16(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  pack_words(x, row_stride, rows, in_features * 2, packed);
}

void pack_float32(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  pack_words(x, row_stride, rows, in_features * 4, packed);
}

void pack_float16(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const uint16_t* from =
        reinterpret_cast<const uint16_t*>(static_cast<const char*>(x) + r * row_stride);
    float* to = static_cast<float*>(packed) + r;
    for (int64_t k = 0; k < in_features; ++k) to[k * rows] = _cvtsh_ss(from[k]);
  }
}

struct ReadFloat32 {
  using Stored = float;
  static inline float read(float value) { return value; }
};

struct ReadFloat16 {
  using Stored = uint16_t;
  static inline float read(uint16_t value) { return _cvtsh_ss(value); }
};

// Two floats a row and step, the last zero past in_features.
template <typename Read>
void pack_pairs(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const typename Read::Stored* from = reinterpret_cast<const typename Read::Stored*>(
        static_cast<const char*>(x) + r * row_stride);
    float* to = static_cast<float*>(packed) + r * 2;
    for (int64_t k = 0; k < in_features; ++k) to[k / 2 * rows * 2 + k % 2] = Read::read(from[k]);
    if (in_features % 2 != 0) to[in_features / 2 * rows * 2 + 1] = 0.0f;
  }
}

// Codes of FP8 as pairs of bfloat16, NaN as NaN.
void pack_float8(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const char* from = static_cast<const char*>(x) + r * row_stride;
    int32_t* to = static_cast<int32_t*>(packed) + r;
    for (int64_t k = 0; k < in_features; k += 32) {
      const int64_t count = in_features - k < 32 ? in_features - k : 32;
      const __mmask32 present =
          count == 32 ? 0xffffffffu : static_cast<__mmask32>((1u << count) - 1);
      const __m256i codes = _mm256_maskz_loadu_epi8(present, from + k);
      const __m256i magnitudes = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
      const __mmask32 nan = _mm256_cmpeq_epi8_mask(magnitudes, _mm256_set1_epi8(0x7f));
      alignas(64) int32_t pairs[16];
      _mm512_store_si512(
          pairs, _mm512_mask_mov_epi16(expand_float8(codes), nan, _mm512_set1_epi16(0x7fc0)));
      for (int64_t i = 0; i < (count + 1) / 2; ++i) to[(k / 2 + i) * rows] = pairs[i];
    }
  }
}

// Rounding stores of 16 values, of which those in `mask`.
struct StoreFloat32 {
  static constexpr int64_t kSize = 4;
  static inline void store(char* y, __mmask16 mask, __m512 value) {
    _mm512_mask_storeu_ps(y, mask, value);
  }
};

struct StoreFloat16 {
  static constexpr int64_t kSize = 2;
  static inline void store(char* y, __mmask16 mask, __m512 value) {
    _mm256_mask_storeu_epi16(y, mask, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
};

// With integers, because vcvtneps2bf16 would flush denormals.
struct StoreBFloat16 {
  static constexpr int64_t kSize = 2;
  static inline void store(char* y, __mmask16 mask, __m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_mask_storeu_epi16(y, mask, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }
};

template <typename Store>
void store_rows(
    const float* sums, int rows, int columns, const float* bias, void* y, int64_t row_stride) {
  for (int r = 0; r < rows; ++r) {
    char* to = static_cast<char*>(y) + r * row_stride;
    for (int c = 0; c < columns; c += 16) {
      const __mmask16 mask =
          columns - c >= 16 ? 0xffff : static_cast<__mmask16>((1u << (columns - c)) - 1);
      __m512 value = _mm512_loadu_ps(sums + r * kPanelColumns + c);
      if (bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, bias + c));
      Store::store(to + c * Store::kSize, mask, value);
    }
  }
}

}  // namespace

const KernelTable kAvx512BFloat16 = {kVectors * BFloat16Step::kWeightVectorSize,
                                     4,
                                     kMaxTileRows,
                                     pack_bfloat16,
                                     multiply<BFloat16Step>,
                                     store_rows<StoreFloat32>,
                                     store_rows<StoreBFloat16>};
const KernelTable kAvx512Float16 = {kVectors * Float16Step::kWeightVectorSize,
                                    4,
                                    kMaxTileRows,
                                    pack_float16,
                                    multiply<Float16Step>,
                                    store_rows<StoreFloat32>,
                                    store_rows<StoreFloat16>};
const KernelTable kAvx512Float32 = {kVectors * Float32Step::kWeightVectorSize,
                                    4,
                                    kMaxTileRows,
                                    pack_float32,
                                    multiply<Float32Step>,
                                    store_rows<StoreFloat32>,
                                    store_rows<StoreFloat32>};

namespace {

constexpr int64_t kFloat8StepSize = kVectors * Float8Step::kWeightVectorSize;

template <typename Store>
constexpr KernelTable float8_by_pairs(decltype(KernelTable::pack_x) pack_x) {
  return {kFloat8StepSize,
          4,
          kMaxTileRows,
          pack_x,
          multiply<Float8Step>,
          store_rows<StoreFloat32>,
          store_rows<Store>};
}

template <typename Read, typename Store>
constexpr KernelTable float8_by_halves() {
  return {kFloat8StepSize,
          8,
          kMaxTileRows,
          pack_pairs<Read>,
          multiply<Float8HalfStep>,
          store_rows<StoreFloat32>,
          store_rows<Store>,
          256.0f};
}

}  // namespace

const Float8Tables kAvx512Float8 = {float8_by_pairs<StoreBFloat16>(pack_bfloat16),
                                    float8_by_halves<ReadFloat16, StoreFloat16>(),
                                    float8_by_halves<ReadFloat32, StoreFloat32>(),
                                    float8_by_pairs<StoreBFloat16>(pack_float8),
                                    float8_by_pairs<StoreFloat16>(pack_float8)};

}  // namespace atom::ops::linear_kernels
