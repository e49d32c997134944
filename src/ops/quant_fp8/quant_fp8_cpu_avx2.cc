#include "ops/quant_fp8/quant_fp8_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void quant_fp8_avx2(const QuantFp8Args& args, int64_t begin, int64_t end) {
  quant_fp8_rows<Avx2>(args, begin, end);
}

}  // namespace atom::ops
