#include "ops/quantize/quantize_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {
namespace {

struct Avx2WithInt8 : Avx2 {
  // What is not a number becomes 127.
  static void store_int8(uint8_t* p, int64_t n, Float value) {
    const Float limited =
        _mm256_max_ps(_mm256_min_ps(value, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-128.0f));
    const __m256i integers = _mm256_cvtps_epi32(limited);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
    const __m128i bytes = _mm_packs_epi16(words, words);
    memcpy(p, &bytes, static_cast<size_t>(n));
  }
};

}  // namespace

void quantize_avx2(const QuantizeArgs& args, int64_t begin, int64_t end) {
  quantize_rows<Avx2WithInt8>(args, begin, end);
}

}  // namespace atom::ops
