#include "ops/quantize/quantize_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {

void quantize_avx512(const QuantizeArgs& args, int64_t begin, int64_t end) {
  quantize_rows<Avx512>(args, begin, end);
}

}  // namespace atom::ops
