#include "ops/rms_norm_gated/rms_norm_gated_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {

void rms_norm_gated_avx512(const RmsNormGatedArgs& args, int64_t begin, int64_t end) {
  rms_norm_gated_rows<Avx512>(args, begin, end);
}

}  // namespace atom::ops
