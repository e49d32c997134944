#include "ops/fused_moe/moe_whole_float8_launch_sm90.h"
#include "ops/fused_moe/moe_whole_float8_sm90.cuh"

namespace atom::ops::device::whole8 {

gpuError_t launch_gated(const MoeWholeFloat8Args& args, int num_blocks, gpuStream_t stream) {
  return launch_matrices<true>(args, num_blocks, stream);
}

}  // namespace atom::ops::device::whole8
