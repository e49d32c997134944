#include "ops/rms_norm_gated/rms_norm_gated_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void rms_norm_gated_avx2(const RmsNormGatedArgs& args, int64_t begin, int64_t end) {
  rms_norm_gated_rows<Avx2>(args, begin, end);
}

}  // namespace atom::ops
