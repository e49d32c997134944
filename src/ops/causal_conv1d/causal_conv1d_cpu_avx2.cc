#include "ops/causal_conv1d/causal_conv1d_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void causal_conv1d_avx2(const CausalConv1dArgs& args, const CausalConv1dTask& task) {
  convolve<Avx2>(args, task);
}

}  // namespace atom::ops
