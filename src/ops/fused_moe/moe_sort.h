// Inside fused_moe on Hopper: choices of many tokens sorted by expert.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

// choices, rows, row_begins and tile_begins, of tiles of so many rows, by several blocks.
gpuError_t sort_many_moe_choices(const FusedMoeGpuCall& call,
                                 const FusedMoeGpuScratch& scratch,
                                 int tile_rows,
                                 gpuStream_t stream);

}  // namespace atom::ops
