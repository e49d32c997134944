// Quantized weights by AVX2, expanded in registers to float32, or INT8 to 16-bit integers for
// activations in INT8.
#include "ops/linear/cpu/linear_avx2.h"

namespace atom::ops::linear_kernels {
namespace {

inline __m256 add_float32(__m256 sum, __m256 weight, __m256 x) {
  return _mm256_fmadd_ps(weight, x, sum);
}

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
  static inline __m256 add(__m256 sum, __m256 weight, __m256 x) {
    return add_float32(sum, weight, x);
  }
};

// Pairs of INT8, multiplied exactly: sums are integers in the place of floats.
struct Int8Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 16;
  template <int>
  static inline __m256 load(const char* weight) {
    return _mm256_castsi256_ps(
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight))));
  }
  static inline __m256 add(__m256 sum, __m256 weight, __m256 x) {
    const __m256i products = _mm256_madd_epi16(_mm256_castps_si256(weight), _mm256_castps_si256(x));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), products));
  }
};

// The kHalf-th of pairs of INT8 as float32.
struct Int8HalfStep {
  static constexpr int kValues = 2;
  static constexpr int64_t kWeightVectorSize = 16;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    const __m256i pair =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight)));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(pair, kHalf == 0 ? 24 : 16), 24));
  }
  static inline __m256 add(__m256 sum, __m256 weight, __m256 x) {
    return add_float32(sum, weight, x);
  }
};

// The values of 4-bit codes, those whose upper bit is 0 and those where it is 1.
struct Float4Values {
  static inline __m256 lower() { return _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6); }
  static inline __m256 upper() { return _mm256_setr_ps(-0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6); }
};

struct Int4Values {
  static inline __m256 lower() { return _mm256_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1); }
  static inline __m256 upper() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
};

// The kIndex-th of eight 4-bit codes of a column; those of even k are in the lower half of 4 bytes.
template <typename Values>
struct FourBitStep {
  static constexpr int kValues = 8;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int kIndex>
  static inline __m256 load(const char* weight) {
    constexpr int kShift = 4 * (kIndex % 2 * 4 + kIndex / 2);
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    const __m256i index = _mm256_srli_epi32(codes, kShift);  // of which 3 bits count
    const __m256 is_upper = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28 - kShift));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(Values::lower(), index),
                            _mm256_permutevar8x32_ps(Values::upper(), index),
                            is_upper);
  }
  static inline __m256 add(__m256 sum, __m256 weight, __m256 x) {
    return add_float32(sum, weight, x);
  }
};

struct ReadFloat8 {
  using Stored = uint8_t;
  static inline float read(uint8_t code) {
    if ((code & 0x7f) == 0x7f) return __builtin_nanf("");
    return 256.0f * _cvtsh_ss(static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7));
  }
};

// INT8 as pairs of 16-bit integers, zero past in_features.
void pack_int8(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const int8_t* from = static_cast<const int8_t*>(x) + r * row_stride;
    int16_t* to = static_cast<int16_t*>(packed) + r * 2;
    for (int64_t k = 0; k < in_features; ++k) to[k / 2 * rows * 2 + k % 2] = from[k];
    if (in_features % 2 != 0) to[in_features / 2 * rows * 2 + 1] = 0;
  }
}

// Codes of FP4, two in a byte and the first in its lower half.
void pack_float4(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  static constexpr float kFloat4[] = {
      0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (int r = 0; r < rows; ++r) {
    const uint8_t* from = static_cast<const uint8_t*>(x) + r * row_stride;
    float* to = static_cast<float*>(packed) + r * 8;
    for (int64_t k = 0; k < in_features; ++k) {
      to[k / 8 * rows * 8 + k % 8] = kFloat4[from[k / 2] >> (k % 2 * 4) & 15];
    }
  }
}

template <typename Step>
constexpr KernelTable table_of(decltype(KernelTable::pack_x) pack,
                               float unit = 1.0f,
                               bool integer_sums = false) {
  return {.weight_step_size = kPanelColumns / 8 * Step::kWeightVectorSize,
          .x_step_size = 4 * Step::kValues,
          .max_streaming_rows = 1,
          .pack_x = pack,
          .multiply = multiply<Step>,
          .multiply_in_groups = integer_sums ? nullptr : multiply_in_groups<Step>,
          .unit = unit,
          .integer_sums = integer_sums};
}

template <typename Values>
constexpr QuantizedTables four_bit_tables() {
  using Step = FourBitStep<Values>;
  return {.float32 = table_of<Step>(pack_x<ReadFloat32, 8>),
          .float16 = table_of<Step>(pack_x<ReadFloat16, 8>),
          .bfloat16 = table_of<Step>(pack_x<ReadBFloat16, 8>),
          .float8 = table_of<Step>(pack_x<ReadFloat8, 8>),
          .float4 = table_of<Step>(pack_float4)};
}

}  // namespace

// The steps give 2^-8 of the products.
const QuantizedTables kAvx2Float8 = {
    .float32 = table_of<Float8Step>(pack_x<ReadFloat32, 2>, 256.0f),
    .float16 = table_of<Float8Step>(pack_x<ReadFloat16, 2>, 256.0f),
    .bfloat16 = table_of<Float8Step>(pack_x<ReadBFloat16, 2>, 256.0f),
    .float8 = table_of<Float8Step>(pack_x<ReadFloat8, 2>, 256.0f)};
const QuantizedTables kAvx2Int8 = {.float32 = table_of<Int8HalfStep>(pack_x<ReadFloat32, 2>),
                                   .float16 = table_of<Int8HalfStep>(pack_x<ReadFloat16, 2>),
                                   .bfloat16 = table_of<Int8HalfStep>(pack_x<ReadBFloat16, 2>),
                                   .int8 = table_of<Int8Step>(pack_int8, 1.0f, true)};
const QuantizedTables kAvx2Float4 = four_bit_tables<Float4Values>();
const QuantizedTables kAvx2Int4 = four_bit_tables<Int4Values>();

}  // namespace atom::ops::linear_kernels
