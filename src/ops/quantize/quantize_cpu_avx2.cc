#include "ops/quantize/quantize_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void quantize_avx2(const QuantizeArgs& args, int64_t begin, int64_t end) {
  quantize_rows<Avx2>(args, begin, end);
}

}  // namespace atom::ops
