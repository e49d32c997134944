#include "ops/fused_moe/moe_rows_launch_sm90.cuh"

namespace atom::ops {

gpuError_t launch_moe_rows_split_early_float4(const FusedMoeGpuCall& call,
                                              const MoeRowsScratch& scratch,
                                              gpuStream_t stream) {
  return device::rows::launch_both<device::EarlySplitFloat4, 8>(call, scratch, stream);
}

}  // namespace atom::ops
