// Inside fused_moe: many tokens by experts in MXFP4 on Hopper. The matrix units take a matrix's
// rows from registers, where they are expanded to bfloat16, and rows of x, gathered by expert, from
// shared memory.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

// Of k, between which and the next as many elements of x are in an order of their own; see
// place_in_chunk().
constexpr int kMoeChunkColumns = 128;

struct MoeFloat4Scratch {
  // `choices`, `row_begins`, `tile_begins`, and `activated` [rows, padded intermediate_size].
  FusedMoeGpuScratch shared;
  void* x;        // [rows, padded hidden_size]
  void* results;  // [choices, hidden_size], weighted, of x's type
};

// Columns of x in scratch memory.
constexpr int64_t padded_moe_columns(int64_t columns) {
  return (columns + kMoeChunkColumns - 1) / kMoeChunkColumns * kMoeChunkColumns;
}

// x in bfloat16.
bool fits_moe_float4(const FusedMoeGpuCall& call);
gpuError_t launch_moe_float4(const FusedMoeGpuCall& call,
                             const MoeFloat4Scratch& scratch,
                             gpuStream_t stream);

}  // namespace atom::ops
