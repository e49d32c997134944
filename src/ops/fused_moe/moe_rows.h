// Inside fused_moe: from one token to some dozens for each expert, on Hopper. The matrix units take
// rows of a matrix as their first operand, 64 of a warpgroup, and tokens as the second, 8 to 128 of
// an expert. Rows in 16 bits come from shared memory; MXFP4 is expanded to bfloat16 in registers.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct MoeRowsScratch {
  // `choices`, `row_begins`, `tile_begins`, and `activated` [rows, padded intermediate_size].
  FusedMoeGpuScratch shared;
  void* x;        // [rows, padded hidden_size], by expert
  void* results;  // [choices, hidden_size], weighted, of x's type
};

// Columns of x in scratch memory, where those of a chunk of k are in the order in which products
// take them.
constexpr int64_t padded_moe_columns(int64_t columns) {
  constexpr int kLargestChunk = 128;
  return (columns + kLargestChunk - 1) / kLargestChunk * kLargestChunk;
}

// bfloat16, and matrices in that or in MXFP4, as rows or as images.
bool fits_moe_rows(const FusedMoeGpuCall& call);
gpuError_t launch_moe_rows(const FusedMoeGpuCall& call,
                           const MoeRowsScratch& scratch,
                           gpuStream_t stream);
// bfloat16, up to eight tokens with up to 64 choices: the first matrix's copies do not wait for the
// kernel that arranges choices and x.
bool fits_moe_rows_early(const FusedMoeGpuCall& call);
gpuError_t launch_moe_rows_early(const FusedMoeGpuCall& call,
                                 const MoeRowsScratch& scratch,
                                 gpuStream_t stream);
}  // namespace atom::ops
