#include "ops/rms_norm/rms_norm_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {

void rms_norm_avx512(const RmsNormArgs& args, int64_t begin, int64_t end) {
  rms_norm_rows<Avx512>(args, begin, end);
}

}  // namespace atom::ops
