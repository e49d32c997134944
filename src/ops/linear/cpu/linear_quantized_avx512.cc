// Quantized weights by AVX-512, expanded in registers: FP8, FP4 and INT4 to bfloat16 for
// activations that bfloat16 holds and to float32 for others, INT8 to 16-bit integers for
// activations in INT8.
#include "ops/linear/cpu/linear_avx512.h"

namespace atom::ops::linear_kernels {
namespace {

// The upper and the lower byte of bfloat16 for codes of FP8 without their sign.
struct Float8Bytes {
  uint8_t upper[128] = {};
  uint8_t lower[128] = {};

  constexpr Float8Bytes() {
    for (int code = 0; code < 128; ++code) {
      const int bits = bfloat16_of(code);
      upper[code] = static_cast<uint8_t>(bits >> 8);
      lower[code] = static_cast<uint8_t>(bits & 0xff);
    }
  }

 private:
  static constexpr int bfloat16_of(int code) {
    const int exponent = code >> 3, mantissa = code & 7;
    if (code == 0x7f) return 0x7fc0;
    if (exponent > 0) return (exponent + 120) << 7 | mantissa << 4;
    if (mantissa == 0) return 0;
    const int leading = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;  // m * 2^-9 is subnormal in FP8
    return (leading - 9 + 127) << 7 | (mantissa << (7 - leading) & 0x7f);
  }
};

alignas(64) constexpr Float8Bytes kFloat8Bytes;

// 64 codes of FP8 as bfloat16: the even groups of eight of them, and the odd ones.
inline void expand_float8(__m512i codes, __m512i& evens, __m512i& odds) {
  const auto table = [](const uint8_t* bytes) { return _mm512_load_si512(bytes); };
  const uint8_t* upper = kFloat8Bytes.upper;
  const uint8_t* lower = kFloat8Bytes.lower;
  const __m512i high = _mm512_permutex2var_epi8(table(upper), codes, table(upper + 64));
  const __m512i low = _mm512_permutex2var_epi8(table(lower), codes, table(lower + 64));
  // high | (codes & sign)
  const __m512i with_sign = _mm512_ternarylogic_epi64(high, codes, _mm512_set1_epi8(-0x80), 0xf8);
  evens = _mm512_unpacklo_epi8(low, with_sign);
  odds = _mm512_unpackhi_epi8(low, with_sign);
}

// Pairs of FP8 as pairs of bfloat16.
struct Float8Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kStepSize = 32 * kVectors;
  static constexpr bool kInterleaves = true;
  template <int>
  static inline void load(const char* weight, __m512i (&w)[kVectors]) {
    for (int v = 0; v < kVectors; v += 2) {
      expand_float8(_mm512_loadu_si512(weight + v * 32), w[v], w[v + 1]);
    }
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return add_bfloat16_pairs(sum, weight, x);
  }
};

// A step whose vectors are made one by one, each from kSize bytes.
template <typename Vector>
struct VectorStep : Vector {
  static constexpr int64_t kStepSize = Vector::kSize * kVectors;
  static constexpr bool kInterleaves = false;
  template <int kValue>
  static inline void load(const char* weight, __m512i (&w)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) {
      w[v] = Vector::template load_vector<kValue>(weight + v * Vector::kSize);
    }
  }
};

// The kHalf-th of pairs of FP8 as float32, 2^-8 of its value: float16 has the code's bits in it.
struct Float8HalfVector {
  static constexpr int kValues = 2;
  static constexpr int64_t kSize = 32;
  template <int kHalf>
  static inline __m512i load_vector(const char* weight) {
    __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    if (kHalf == 0) pair = _mm256_slli_epi16(pair, 8);
    const __m256i half = _mm256_and_si256(_mm256_srai_epi16(pair, 1), _mm256_set1_epi16(-0x4080));
    return _mm512_castps_si512(_mm512_cvtph_ps(half));
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return add_float32(sum, weight, x);
  }
};

// Pairs of INT8, multiplied exactly: sums are integers in the place of floats.
struct Int8Vector {
  static constexpr int kValues = 1;
  static constexpr int64_t kSize = 32;
  template <int>
  static inline __m512i load_vector(const char* weight) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight)));
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return _mm512_castsi512_ps(_mm512_dpwssd_epi32(_mm512_castps_si512(sum), weight, x));
  }
};

// The kHalf-th of pairs of INT8 as float32.
struct Int8HalfVector {
  static constexpr int kValues = 2;
  static constexpr int64_t kSize = 32;
  template <int kHalf>
  static inline __m512i load_vector(const char* weight) {
    const __m512i pair =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight)));
    const __m512i value = _mm512_srai_epi32(_mm512_slli_epi32(pair, kHalf == 0 ? 24 : 16), 24);
    return _mm512_castps_si512(_mm512_cvtepi32_ps(value));
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return add_float32(sum, weight, x);
  }
};

// The same pairs once they are 16-bit integers.
struct Int16Step : WholeStep {
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return Int8Vector::add(sum, weight, x);
  }
};

// The values of 4-bit codes.
struct Float4Values {
  static inline __m256i bfloat16() {
    return _mm256_setr_epi16(0,
                             0x3f00,
                             0x3f80,
                             0x3fc0,
                             0x4000,
                             0x4040,
                             0x4080,
                             0x40c0,
                             static_cast<int16_t>(0x8000),
                             static_cast<int16_t>(0xbf00),
                             static_cast<int16_t>(0xbf80),
                             static_cast<int16_t>(0xbfc0),
                             static_cast<int16_t>(0xc000),
                             static_cast<int16_t>(0xc040),
                             static_cast<int16_t>(0xc080),
                             static_cast<int16_t>(0xc0c0));
  }
  static inline __m512 float32() {
    return _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
  }
};

struct Int4Values {
  static inline __m256i bfloat16() {
    return _mm256_setr_epi16(static_cast<int16_t>(0xc100),
                             static_cast<int16_t>(0xc0e0),
                             static_cast<int16_t>(0xc0c0),
                             static_cast<int16_t>(0xc0a0),
                             static_cast<int16_t>(0xc080),
                             static_cast<int16_t>(0xc040),
                             static_cast<int16_t>(0xc000),
                             static_cast<int16_t>(0xbf80),
                             0,
                             0x3f80,
                             0x4000,
                             0x4040,
                             0x4080,
                             0x40a0,
                             0x40c0,
                             0x40e0);
  }
  static inline __m512 float32() {
    return _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  }
};

// Eight 4-bit codes of a column in a step, those of even k in the lower half of 4 bytes: the
// kPair-th codes of both halves, as a pair of bfloat16.
template <typename Values>
struct FourBitVector {
  static constexpr int kValues = 4;
  static constexpr int64_t kSize = 64;
  template <int kPair>
  static inline __m512i load_vector(const char* weight) {
    // The lookup takes the 5 lower bits of each half, of which the fifth belongs to another code.
    const __m512i table = _mm512_broadcast_i64x4(Values::bfloat16());
    return _mm512_permutexvar_epi16(_mm512_srli_epi16(_mm512_loadu_si512(weight), 4 * kPair),
                                    table);
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return add_bfloat16_pairs(sum, weight, x);
  }
};

// The kIndex-th code as float32.
template <typename Values>
struct FourBitFloatVector {
  static constexpr int kValues = 8;
  static constexpr int64_t kSize = 64;
  template <int kIndex>
  static inline __m512i load_vector(const char* weight) {
    constexpr int kShift = 4 * (kIndex % 2 * 4 + kIndex / 2);
    return _mm512_castps_si512(_mm512_permutexvar_ps(
        _mm512_srli_epi32(_mm512_loadu_si512(weight), kShift), Values::float32()));
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return add_float32(sum, weight, x);
  }
};

// Eight values of 2 bytes a row and step, zeros past in_features.
void pack_groups_of_eight(
    const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const char* from = static_cast<const char*>(x) + r * row_stride;
    char* to = static_cast<char*>(packed) + r * 16;
    int64_t k = 0;
    for (; k + 8 <= in_features; k += 8, to += int64_t{rows} * 16) memcpy(to, from + k * 2, 16);
    if (k == in_features) continue;
    memset(to, 0, 16);
    memcpy(to, from + k * 2, (in_features - k) * 2);
  }
}

// Where the word of pair `pair` of row r lies.
template <int kValues>
inline int32_t* word_at(void* packed, int rows, int r, int64_t pair) {
  return static_cast<int32_t*>(packed) + (pair / kValues * rows + r) * kValues + pair % kValues;
}

// 32 values of 2 bytes as pairs, of which the first `count` values.
template <int kValues>
inline void store_pairs(
    __m512i values, int64_t count, void* packed, int rows, int r, int64_t pair) {
  alignas(64) int32_t pairs[16];
  _mm512_store_si512(pairs, values);
  for (int64_t i = 0; i < (count + 1) / 2; ++i)
    *word_at<kValues>(packed, rows, r, pair + i) = pairs[i];
}

inline __mmask32 first_of(int64_t count) {
  return count >= 32 ? 0xffffffffu : static_cast<__mmask32>((1u << count) - 1);
}

// Codes of FP8 as pairs of bfloat16.
template <int kValues>
void pack_float8(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const char* from = static_cast<const char*>(x) + r * row_stride;
    for (int64_t k = 0; k < in_features; k += 64) {
      const int64_t count = in_features - k < 64 ? in_features - k : 64;
      const __mmask64 mask = count == 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
      __m512i evens, odds;
      expand_float8(_mm512_maskz_loadu_epi8(mask, from + k), evens, odds);
      __m512 first = _mm512_castsi512_ps(evens), second = _mm512_castsi512_ps(odds);
      order_columns(first, second);
      const int64_t half = count < 32 ? count : 32;
      store_pairs<kValues>(_mm512_castps_si512(first), half, packed, rows, r, k / 2);
      store_pairs<kValues>(_mm512_castps_si512(second), count - half, packed, rows, r, k / 2 + 16);
    }
  }
}

// INT8 as pairs of 16-bit integers.
void pack_int8(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  for (int r = 0; r < rows; ++r) {
    const char* from = static_cast<const char*>(x) + r * row_stride;
    for (int64_t k = 0; k < in_features; k += 32) {
      const int64_t count = in_features - k < 32 ? in_features - k : 32;
      const __m256i codes = _mm256_maskz_loadu_epi8(first_of(count), from + k);
      store_pairs<1>(_mm512_cvtepi8_epi16(codes), count, packed, rows, r, k / 2);
    }
  }
}

// Codes of FP4, two in a byte and the first in its lower half, as pairs of bfloat16.
template <int kValues>
void pack_float4(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  const __m512i table = _mm512_broadcast_i64x4(Float4Values::bfloat16());
  for (int r = 0; r < rows; ++r) {
    const char* from = static_cast<const char*>(x) + r * row_stride;
    for (int64_t k = 0; k < in_features; k += 32) {
      const int64_t count = in_features - k < 32 ? in_features - k : 32;
      const __m512i bytes = _mm512_cvtepu8_epi32(
          _mm_maskz_loadu_epi8(static_cast<__mmask16>(first_of((count + 1) / 2)), from + k / 2));
      // The lower code stays, with others above it; the upper one moves into the upper half.
      const __m512i codes = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
      store_pairs<kValues>(_mm512_permutexvar_epi16(codes, table), count, packed, rows, r, k / 2);
    }
  }
}

template <typename Step>
constexpr KernelTable table_of(decltype(KernelTable::pack_x) pack_x,
                               float unit = 1.0f,
                               const KernelTable* expanded = nullptr) {
  return {.weight_step_size = Step::kStepSize,
          .x_step_size = 4 * Step::kValues,
          .max_streaming_rows = kMaxTileRows,
          .pack_x = pack_x,
          .multiply = multiply<Step>,
          .multiply_in_groups = multiply_in_groups<Step>,
          .unit = unit,
          .expanded = expanded,
          .expanded_steps = Step::kValues,
          .expand = expand_steps<Step>};
}

// Sums of INT8 are integers, and never in groups.
template <typename Step>
constexpr KernelTable integer_table_of(decltype(KernelTable::pack_x) pack_x,
                                       const KernelTable* expanded) {
  KernelTable table = table_of<Step>(pack_x, 1.0f, expanded);
  table.multiply_in_groups = nullptr;
  table.integer_sums = true;
  return table;
}

using Float8HalfStep = VectorStep<Float8HalfVector>;
using Int8Step = VectorStep<Int8Vector>;
using Int8HalfStep = VectorStep<Int8HalfVector>;

// Of weights that were expanded, by the activations they meet.
constexpr KernelTable kExpandedForBFloat16 = table_of<BFloat16Step>(pack_bfloat16);
constexpr KernelTable kExpandedForFloat8 = table_of<BFloat16Step>(pack_float8<1>);
constexpr KernelTable kExpandedForFloat4 = table_of<BFloat16Step>(pack_float4<1>);
constexpr KernelTable kExpandedForInt8 = integer_table_of<Int16Step>(pack_int8, nullptr);

template <typename Values>
constexpr QuantizedTables four_bit_tables() {
  using Step = VectorStep<FourBitVector<Values>>;
  using FloatStep = VectorStep<FourBitFloatVector<Values>>;
  return {.float32 = table_of<FloatStep>(pack_floats<ReadFloat32, 8>),
          .float16 = table_of<FloatStep>(pack_floats<ReadFloat16, 8>),
          .bfloat16 = table_of<Step>(pack_groups_of_eight, 1.0f, &kExpandedForBFloat16),
          .float8 = table_of<Step>(pack_float8<4>, 1.0f, &kExpandedForFloat8),
          .float4 = table_of<Step>(pack_float4<4>, 1.0f, &kExpandedForFloat4)};
}

}  // namespace

// The half steps give 2^-8 of the products.
const QuantizedTables kAvx512Float8 = {
    .float32 = table_of<Float8HalfStep>(pack_floats<ReadFloat32, 2>, 256.0f),
    .float16 = table_of<Float8HalfStep>(pack_floats<ReadFloat16, 2>, 256.0f),
    .bfloat16 = table_of<Float8Step>(pack_bfloat16, 1.0f, &kExpandedForBFloat16),
    .float8 = table_of<Float8Step>(pack_float8<1>, 1.0f, &kExpandedForFloat8)};
const QuantizedTables kAvx512Int8 = {
    .float32 = table_of<Int8HalfStep>(pack_floats<ReadFloat32, 2>),
    .float16 = table_of<Int8HalfStep>(pack_floats<ReadFloat16, 2>),
    .bfloat16 = table_of<Int8HalfStep>(pack_floats<ReadBFloat16, 2>),
    .int8 = integer_table_of<Int8Step>(pack_int8, &kExpandedForInt8)};
const QuantizedTables kAvx512Float4 = four_bit_tables<Float4Values>();
const QuantizedTables kAvx512Int4 = four_bit_tables<Int4Values>();

}  // namespace atom::ops::linear_kernels
