#include "ops/fused_moe/moe_mixed_launch_sm90.h"
#include "ops/fused_moe/moe_mixed_sm90.cuh"

namespace atom::ops::device::mixed {

gpuError_t launch_down(const MoeMixedArgs& args, int num_blocks, gpuStream_t stream) {
  return launch_matrix<false>(args, num_blocks, stream);
}

}  // namespace atom::ops::device::mixed
