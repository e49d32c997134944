// Quantized weights by AVX2, expanded in registers to float32, or INT8 to 16-bit integers for
// activations in INT8.
#include "ops/linear/cpu/expand_avx2.h"
#include "ops/linear/cpu/linear_avx2.h"
#include "ops/linear/cpu/pack_floats.h"

namespace atom::ops::linear_kernels {
namespace {

inline __m256 add_float32(__m256 sum, __m256 weight, __m256 x) {
  return _mm256_fmadd_ps(weight, x, sum);
}

// 2^-120 of the values: float32 has the code's bits in it, a subnormal number's too. The codes of
// NaN become 480. Pairs of codes are halves of a register's words.
struct Float8Step {
  static constexpr int kValues = 2;
  static constexpr int64_t kWeightVectorSize = 16;
  template <int kHalf>
  static inline void load_columns(const char* weight, __m256 (&columns)[2]) {
    __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    if (kHalf == 0) codes = _mm256_slli_epi16(codes, 8);
    const __m256i bits = _mm256_and_si256(_mm256_srai_epi16(codes, 4), _mm256_set1_epi16(-0x7810));
    columns[0] = first_of_pair(bits);
    columns[1] = second_of_pair(bits);
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

// Of the values of 16 codes as bfloat16 one byte each, in both halves.
inline __m256i table_of_bytes(uint64_t first, uint64_t second) {
  return _mm256_setr_epi64x(static_cast<int64_t>(first),
                            static_cast<int64_t>(second),
                            static_cast<int64_t>(first),
                            static_cast<int64_t>(second));
}

// +-0, 0.5, 1, 1.5, 2, 3, 4, 6.
struct Float4Values {
  static inline __m256i high() { return table_of_bytes(0x404040403f3f3f00, 0xc0c0c0c0bfbfbf80); }
  static inline __m256i low() { return table_of_bytes(0xc0804000c0800000, 0xc0804000c0800000); }
};

// -8 to 7.
struct Int4Values {
  static inline __m256i high() { return table_of_bytes(0xbfc0c0c0c0c0c0c1, 0x4040404040403f00); }
  static inline __m256i low() { return table_of_bytes(0x80004080a0c0e000, 0xe0c0a08040008000); }
};

// Eight 4-bit codes of a column in 4 bytes; those of even k are in the lower half.
template <typename Values>
struct FourBitStep {
  static constexpr int kValues = 8;
  static constexpr int64_t kWeightVectorSize = 32;

  // Of 8 columns, as pairs of bfloat16 of k and k + 1, k ascending.
  static inline void load_pairs(const char* weight, __m256i (&pairs)[4]) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    const __m256i mask = _mm256_set1_epi8(15);
    join(_mm256_and_si256(codes, mask), pairs[0], pairs[2]);
    join(_mm256_and_si256(_mm256_srli_epi32(codes, 4), mask), pairs[1], pairs[3]);
  }

 private:
  // The pairs of the first and third and of the second and fourth of 4 codes in bytes.
  static inline void join(__m256i codes, __m256i& evens, __m256i& odds) {
    const __m256i high = _mm256_shuffle_epi8(Values::high(), codes);
    const __m256i low = _mm256_shuffle_epi8(Values::low(), codes);
    const __m256i is_high = _mm256_set1_epi16(-256);
    evens = _mm256_blendv_epi8(low, _mm256_slli_epi16(high, 8), is_high);
    odds = _mm256_blendv_epi8(_mm256_srli_epi16(low, 8), high, is_high);
  }
};

// Twice a value of FP4 is an integer of up to 12: sums of a group of 32 are exact in 16 bits, two
// in the place of a float, and the same as in floating point. Each of the two values is one of 4
// bytes of a column, of the lower or the upper halves of its codes. Weights have 12 added, which
// makes them unsigned; a group's sums start from what that adds to them, in its first step's third
// word.
struct Float4IntegerStep {
  static constexpr int kValues = 2;
  static constexpr int kWords = 3;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    if (kHalf == 1) codes = _mm256_srli_epi32(codes, 4);
    const __m256i values = table_of_bytes(0x181412100f0e0d0c, 0x00040608090a0b0c);
    return _mm256_castsi256_ps(
        _mm256_shuffle_epi8(values, _mm256_and_si256(codes, _mm256_set1_epi8(15))));
  }
  static inline __m256 add(__m256 sum, __m256 weight, __m256 x) {
    const __m256i products =
        _mm256_maddubs_epi16(_mm256_castps_si256(weight), _mm256_castps_si256(x));
    return _mm256_castsi256_ps(_mm256_add_epi16(_mm256_castps_si256(sum), products));
  }
  static inline __m256 first_sum(const float* x) { return _mm256_broadcast_ss(x + kValues); }
  static inline __m256 to_floats(__m256 sum) {
    const __m256i pairs = _mm256_madd_epi16(_mm256_castps_si256(sum), _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps(pairs);
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
template <int kValues>
void pack_float4(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  static constexpr float kFloat4[] = {
      0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (int r = 0; r < rows; ++r) {
    const uint8_t* from = static_cast<const uint8_t*>(x) + r * row_stride;
    float* to = static_cast<float*>(packed) + r * kValues;
    for (int64_t k = 0; k < in_features; ++k) {
      to[k / kValues * rows * kValues + k % kValues] = kFloat4[from[k / 2] >> (k % 2 * 4) & 15];
    }
  }
}

// Codes of FP4 as Float4IntegerStep meets them; in_features are whole groups.
void pack_float4_integers(
    const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  static constexpr int8_t kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  constexpr int64_t kStepSize = 4 * Float4IntegerStep::kWords, kGroup = 32;
  for (int r = 0; r < rows; ++r) {
    const uint8_t* from = static_cast<const uint8_t*>(x) + r * row_stride;
    int8_t* to = static_cast<int8_t*>(packed) + r * kStepSize;
    for (int64_t group = 0; group < in_features; group += kGroup) {
      int16_t first_sums[2] = {};
      for (int64_t k = group; k < group + kGroup; ++k) {
        const int64_t place = k % 2 * 4 + k % 8 / 2;  // of 4 bits
        const int64_t byte = place % 2 * 4 + place / 2;
        const int8_t twice = kTwice[from[k / 2] >> (k % 2 * 4) & 15];
        to[k / 8 * rows * kStepSize + byte] = twice;
        first_sums[byte % 4 / 2] -= 12 * twice;
      }
      memcpy(to + group / 8 * rows * kStepSize + 8, first_sums, sizeof(first_sums));
    }
  }
}

template <typename Step>
constexpr KernelTable table_of(decltype(KernelTable::pack_x) pack,
                               const KernelTable* expanded = nullptr,
                               float unit = 1.0f) {
  return {.weight_step_size = kPanelColumns / 8 * Step::kWeightVectorSize,
          .x_step_size = 4 * Step::kValues,
          .max_streaming_rows = 1,
          .stream_ahead = 8192,
          .pack_x = pack,
          .multiply = multiply<Step>,
          .multiply_in_groups = multiply_in_groups<Step>,
          .unit = unit,
          .expanded = expanded,
          .expanded_steps = Step::kValues,
          .expand = expand_steps<Step>};
}

constexpr float power_of_2(int exponent) {
  float power = 1;
  for (int i = 0; i < exponent; ++i) power *= 2;
  return power;
}

// Sums of INT8 are integers, and never in groups.
constexpr KernelTable integer_table() {
  KernelTable table = table_of<Int8Step>(pack_int8);
  table.streams_unaided = true;
  table.multiply_in_groups = nullptr;
  table.integer_sums = true;
  return table;
}

// Of FP4 by FP4, which always have groups; sums are four times the products.
constexpr KernelTable float4_integer_table(const KernelTable* expanded) {
  KernelTable table = table_of<FourBitStep<Float4Values>>(pack_float4_integers, expanded, 0.25f);
  table.x_step_size = 4 * Float4IntegerStep::kWords;
  table.multiply = nullptr;
  table.multiply_in_groups = multiply_in_groups<Float4IntegerStep>;
  return table;
}

// Of weights that were expanded, by how the activations are packed that they meet.
template <decltype(KernelTable::pack_x) kPack, int kUnitExponent>
constexpr KernelTable kExpandedFor = table_of<Float32Step>(kPack,
                                                           nullptr,
                                                           power_of_2(kUnitExponent));

template <typename Step, typename Read, int kUnitExponent = 0>
constexpr KernelTable table_for() {
  return table_of<Step>(pack_floats<Read, Step::kValues>,
                        &kExpandedFor<pack_floats<Read, 1, Step::kValues>, kUnitExponent>,
                        power_of_2(kUnitExponent));
}

// Activations of FP8's steps are multiplied by 2^64, so that 2^-56 of the products are added.
template <typename Read>
struct ReadEnlarged {
  using Stored = typename Read::Stored;
  static inline float read(Stored value) { return 0x1p64f * Read::read(value); }
};

template <typename Read>
constexpr KernelTable float8_table() {
  return table_for<Float8Step, ReadEnlarged<Read>, 56>();
}

template <typename Values>
constexpr QuantizedTables four_bit_tables() {
  using Step = FourBitStep<Values>;
  return {.float32 = table_for<Step, ReadFloat32>(),
          .float16 = table_for<Step, ReadFloat16>(),
          .bfloat16 = table_for<Step, ReadBFloat16>(),
          .float8 = table_for<Step, ReadFloat8>(),
          .float4 = table_of<Step>(pack_float4<8>, &kExpandedFor<pack_float4<1>, 0>)};
}

constexpr QuantizedTables float4_tables() {
  QuantizedTables tables = four_bit_tables<Float4Values>();
  tables.float4 = float4_integer_table(tables.float4.expanded);
  return tables;
}

}  // namespace

const QuantizedTables kAvx2Float8 = {.float32 = float8_table<ReadFloat32>(),
                                     .float16 = float8_table<ReadFloat16>(),
                                     .bfloat16 = float8_table<ReadBFloat16>(),
                                     .float8 = float8_table<ReadFloat8>()};
const QuantizedTables kAvx2Int8 = {.float32 = table_for<Int8HalfStep, ReadFloat32>(),
                                   .float16 = table_for<Int8HalfStep, ReadFloat16>(),
                                   .bfloat16 = table_for<Int8HalfStep, ReadBFloat16>(),
                                   .int8 = integer_table()};
const QuantizedTables kAvx2Float4 = float4_tables();
const QuantizedTables kAvx2Int4 = four_bit_tables<Int4Values>();

}  // namespace atom::ops::linear_kernels
