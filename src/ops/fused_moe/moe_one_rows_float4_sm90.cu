#include "ops/fused_moe/moe_one_rows_launch_sm90.h"
#include "ops/fused_moe/moe_one_rows_sm90.cuh"

namespace atom::ops {

gpuError_t launch_moe_one_rows_float4(const FusedMoeGpuCall& call,
                                      const MoeOneRowsScratch& scratch,
                                      gpuStream_t stream) {
  return device::moe_one_rows::launch_rows<device::OneFloat4>(call, scratch, stream);
}

}  // namespace atom::ops
