// Weights in floating point by AVX-512, and how every product is stored.
#include "ops/linear/cpu/linear_avx512.h"

namespace atom::ops::linear_kernels {
namespace {

struct Float32Step : WholeStep {
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return add_float32(sum, weight, x);
  }
};

struct Float16Step {
  static constexpr int kValues = 1;
  static constexpr int64_t kStepSize = 32 * kVectors;
  static constexpr bool kInterleaves = false;
  template <int>
  static inline void load(const char* weight, __m512i (&w)[kVectors]) {
    for (int v = 0; v < kVectors; ++v) {
      const auto* half = reinterpret_cast<const __m256i*>(weight + v * 32);
      w[v] = _mm512_castps_si512(_mm512_cvtph_ps(_mm256_loadu_si256(half)));
    }
  }
  static inline __m512 add(__m512 sum, __m512i weight, __m512i x) {
    return add_float32(sum, weight, x);
  }
};

void pack_float32(const void* x, int64_t row_stride, int rows, int64_t in_features, void* packed) {
  pack_words(x, row_stride, rows, in_features * 4, packed);
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

constexpr KernelTable plain_table(int64_t step_size,
                                  decltype(KernelTable::pack_x) pack_x,
                                  decltype(KernelTable::multiply) multiply_tile) {
  return {.weight_step_size = step_size,
          .x_step_size = 4,
          .max_streaming_rows = kMaxTileRows,
          .pack_x = pack_x,
          .multiply = multiply_tile};
}

}  // namespace

const KernelTable kAvx512BFloat16 =
    plain_table(BFloat16Step::kStepSize, pack_bfloat16, multiply<BFloat16Step>);
const KernelTable kAvx512Float16 =
    plain_table(Float16Step::kStepSize, pack_floats<ReadFloat16, 1>, multiply<Float16Step>);
const KernelTable kAvx512Float32 =
    plain_table(Float32Step::kStepSize, pack_float32, multiply<Float32Step>);

const StoreTable kAvx512Stores = {
    store_rows<StoreFloat32>, store_rows<StoreFloat16>, store_rows<StoreBFloat16>};

}  // namespace atom::ops::linear_kernels
