#include "ops/fused_moe/moe_terms_launch_sm90.cuh"

namespace atom::ops {

gpuError_t launch_moe_terms_images(const FusedMoeGpuCall& call,
                                   const MoeTermsScratch& scratch,
                                   int num_tokens,
                                   gpuStream_t stream) {
  return device::terms::launch_matrices<true>(call, scratch, num_tokens, stream);
}

}  // namespace atom::ops
