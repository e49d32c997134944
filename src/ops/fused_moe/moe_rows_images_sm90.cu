#include "ops/fused_moe/moe_rows_launch_sm90.cuh"

namespace atom::ops {

gpuError_t launch_moe_rows_images(const FusedMoeGpuCall& call,
                                  const MoeRowsScratch& scratch,
                                  int num_tokens,
                                  gpuStream_t stream) {
  return device::rows::launch_with<device::ImageFloat4>(num_tokens, call, scratch, stream);
}

}  // namespace atom::ops
