// Inside fused_moe by terms in FP8: its launches.
#pragma once

#include "ops/fused_moe/moe_terms.h"

namespace atom::ops {

// row_begins, tile_begins, choices, x and x_scales.
gpuError_t arrange_moe_terms(const FusedMoeGpuCall& call,
                             const MoeTermsScratch& scratch,
                             int tile_rows,
                             gpuStream_t stream);

}  // namespace atom::ops
