// Inside fused_moe: many tokens on Hopper. Choices are sorted by expert, their rows of x gathered,
// and tiles of 128 rows and 256 rows of an expert's matrix multiplied by the matrix units.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct MoeWgmmaScratch {
  // `choices`, `row_begins`, `tile_begins` of tiles of kMoeTileRows, and `activated`.
  FusedMoeGpuScratch shared;
  void* x;        // [rows, hidden_size]
  void* results;  // [choices, hidden_size], weighted, of x's type
};

constexpr int kMoeTileRows = 128;

// bfloat16 throughout, with whole vectors of 16 bytes in a row; silu or the clamped activation.
bool fits_moe_wgmma(const FusedMoeGpuCall& call);
gpuError_t launch_moe_wgmma(const FusedMoeGpuCall& call,
                            const MoeWgmmaScratch& scratch,
                            gpuStream_t stream);

// scratch.x, when choices are sorted.
gpuError_t gather_moe_rows(const FusedMoeGpuCall& call,
                           const MoeWgmmaScratch& scratch,
                           gpuStream_t stream);

// choices, row_begins and tile_begins, of tiles of so many rows.
gpuError_t sort_moe_choices(const FusedMoeGpuCall& call,
                            const FusedMoeGpuScratch& scratch,
                            int tile_rows,
                            gpuStream_t stream);

// y from the weighted `results` [choices, hidden_size] in bfloat16, of which rows are whole vectors
// of 16 bytes.
gpuError_t add_moe_results(const FusedMoeGpuCall& call, const void* results, gpuStream_t stream);
// The same, with several of a token's results asked for at a time.
gpuError_t add_moe_results_at_once(const FusedMoeGpuCall& call,
                                   const void* results,
                                   gpuStream_t stream);

}  // namespace atom::ops
