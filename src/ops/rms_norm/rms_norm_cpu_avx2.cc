#include "ops/rms_norm/rms_norm_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void rms_norm_avx2(const RmsNormArgs& args, int64_t begin, int64_t end) {
  rms_norm_rows<Avx2>(args, begin, end);
}

}  // namespace atom::ops
