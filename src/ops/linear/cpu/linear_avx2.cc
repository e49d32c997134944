// Weights in floating point by AVX2, and how every product is stored.
#include "ops/linear/cpu/linear_avx2.h"
#include "ops/linear/cpu/expand_avx2.h"
#include "ops/linear/cpu/pack_floats.h"

namespace atom::ops::linear_kernels {
namespace {

// The kHalf-th k of a step, for 8 columns.
struct BFloat16Step {
  static constexpr int kValues = 2;
  static constexpr int64_t kWeightVectorSize = 32;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    return kHalf == 0 ? first_of_pair(pair) : second_of_pair(pair);
  }
  static inline __m256 add(__m256 sum, __m256 weight, __m256 x) {
    return _mm256_fmadd_ps(weight, x, sum);
  }
};

struct Float16Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kWeightVectorSize = 16;
  template <int kHalf>
  static inline __m256 load(const char* weight) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight)));
  }
  static inline __m256 add(__m256 sum, __m256 weight, __m256 x) {
    return _mm256_fmadd_ps(weight, x, sum);
  }
};

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

template <typename Step>
constexpr KernelTable plain_table(decltype(KernelTable::pack_x) pack) {
  return {.weight_step_size = kPanelColumns / 8 * Step::kWeightVectorSize,
          .x_step_size = 4 * Step::kValues,
          .max_streaming_rows = 1,
          .stream_ahead = 8192,
          .streams_unaided = true,
          .pack_x = pack,
          .multiply = multiply<Step>};
}

}  // namespace

const KernelTable kAvx2BFloat16 = plain_table<BFloat16Step>(pack_floats<ReadBFloat16, 2>);
const KernelTable kAvx2Float16 = plain_table<Float16Step>(pack_floats<ReadFloat16, 1>);
const KernelTable kAvx2Float32 = plain_table<Float32Step>(pack_floats<ReadFloat32, 1>);

const StoreTable kAvx2Stores = {
    store_rows<StoreFloat32>, store_rows<StoreFloat16>, store_rows<StoreBFloat16>};

}  // namespace atom::ops::linear_kernels
