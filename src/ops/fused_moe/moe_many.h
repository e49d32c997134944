// Inside fused_moe: many tokens on Hopper. Choices are sorted by expert, and their rows of x
// gathered, before tiles of an expert's rows are multiplied; then a token's results are added up.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct MoeManyScratch {
  // `choices`, `row_begins`, `tile_begins`, and `activated`.
  FusedMoeGpuScratch shared;
  void* x;        // [rows, hidden_size]
  void* results;  // [choices, hidden_size], weighted, of x's type
};

// scratch.x, when choices are sorted.
gpuError_t gather_moe_rows(const FusedMoeGpuCall& call,
                           const MoeManyScratch& scratch,
                           gpuStream_t stream);

// y from the weighted `results` [choices, hidden_size] in bfloat16, of which rows are whole vectors
// of 16 bytes; several of a token's are asked for at a time.
gpuError_t add_moe_results(const FusedMoeGpuCall& call, const void* results, gpuStream_t stream);
// The same from results that are not weighted, in the order of experts: rows[choice] is its row.
gpuError_t add_moe_rows(const FusedMoeGpuCall& call,
                        const void* results,
                        const int32_t* rows,
                        gpuStream_t stream);

}  // namespace atom::ops
