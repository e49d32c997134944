// Inside fused_moe by wide tiles in FP8 on Hopper, of matrices in FP8 or MXFP4: the launches that a
// file each defines.
#pragma once

#include "ops/fused_moe/moe_wide_float8_stage.cuh"

namespace atom::ops::device::wide8 {

gpuError_t launch_gated(const MoeWideFloat8Args& args, int num_blocks, gpuStream_t stream);
gpuError_t launch_down(const MoeWideFloat8Args& args, int num_blocks, gpuStream_t stream);
gpuError_t launch_float4_gated(const MoeWideFloat8Args& args, int num_blocks, gpuStream_t stream);
gpuError_t launch_float4_down(const MoeWideFloat8Args& args, int num_blocks, gpuStream_t stream);

// All but the maps, scales and what is 0; of the first matrix if `gated`.
MoeWideFloat8Args args_of(const FusedMoeGpuCall& call, const MoeFloat8Scratch& scratch, bool gated);
// Rows of codes in FP8, in boxes of 128 columns of so many rows.
bool encode_codes(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns, int box);

}  // namespace atom::ops::device::wide8
