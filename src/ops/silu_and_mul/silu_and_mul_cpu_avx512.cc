#include "ops/silu_and_mul/silu_and_mul_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {

void silu_and_mul_avx512(const SiluAndMulArgs& args, int64_t begin, int64_t end) {
  silu_and_mul_rows<Avx512>(args, begin, end);
}

}  // namespace atom::ops
