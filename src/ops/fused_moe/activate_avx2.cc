#include "ops/fused_moe/activate_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void activate_avx2(const ActivateArgs& args, int64_t begin, int64_t end) {
  if (!activate_rows<Avx2>(args, begin, end)) activate_reference(args, begin, end);
}

}  // namespace atom::ops
