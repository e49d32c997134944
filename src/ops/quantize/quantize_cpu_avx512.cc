#include "ops/quantize/quantize_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {
namespace {

struct Avx512WithInt8 : Avx512 {
  // What is not a number becomes 127.
  static void store_int8(uint8_t* p, int64_t n, Float value) {
    const Float limited =
        _mm512_max_ps(_mm512_min_ps(value, _mm512_set1_ps(127.0f)), _mm512_set1_ps(-128.0f));
    _mm_mask_storeu_epi8(p, first(n), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(limited)));
  }
};

}  // namespace

void quantize_avx512(const QuantizeArgs& args, int64_t begin, int64_t end) {
  quantize_rows<Avx512WithInt8>(args, begin, end);
}

}  // namespace atom::ops
