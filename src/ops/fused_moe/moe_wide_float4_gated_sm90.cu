#include "ops/fused_moe/moe_wide_float4_sm90.cuh"
#include "ops/fused_moe/moe_wide_float8_launch_sm90.h"

namespace atom::ops::device::wide8 {

gpuError_t launch_float4_gated(const MoeWideFloat8Args& args, int num_blocks, gpuStream_t stream) {
  return launch_float4_matrices<true>(args, num_blocks, stream);
}

}  // namespace atom::ops::device::wide8
