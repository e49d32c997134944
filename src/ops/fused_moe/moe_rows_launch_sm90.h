// Inside fused_moe by rows of matrices on Hopper: the launches that the file of each weight type
// defines, of both matrices with tiles of so many tokens.
#pragma once

#include "ops/fused_moe/moe_rows.h"

namespace atom::ops {

gpuError_t launch_moe_rows_bfloat16(const FusedMoeGpuCall& call,
                                    const MoeRowsScratch& scratch,
                                    int num_tokens,
                                    gpuStream_t stream);
gpuError_t launch_moe_rows_float4(const FusedMoeGpuCall& call,
                                  const MoeRowsScratch& scratch,
                                  int num_tokens,
                                  gpuStream_t stream);
// MXFP4, tiles of up to 64 tokens; of more by the one before.
gpuError_t launch_moe_rows_quarter_float4(const FusedMoeGpuCall& call,
                                          const MoeRowsScratch& scratch,
                                          int num_tokens,
                                          gpuStream_t stream);
// The same two of matrices as images.
gpuError_t launch_moe_rows_images(const FusedMoeGpuCall& call,
                                  const MoeRowsScratch& scratch,
                                  int num_tokens,
                                  gpuStream_t stream);
gpuError_t launch_moe_rows_quarter_images(const FusedMoeGpuCall& call,
                                          const MoeRowsScratch& scratch,
                                          int num_tokens,
                                          gpuStream_t stream);
// bfloat16, tiles of 8 tokens, of which there are no more.
gpuError_t launch_moe_rows_early_bfloat16(const FusedMoeGpuCall& call,
                                          const MoeRowsScratch& scratch,
                                          gpuStream_t stream);
}  // namespace atom::ops
