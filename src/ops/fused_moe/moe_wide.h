// Inside fused_moe: many tokens on Hopper, as by moe_wgmma.h but with tokens on the side of the
// product that comes in any multiple of 32, so that an expert's last tile is no whole one, and with
// tokens that reach two blocks by one copy.
#pragma once

#include "ops/fused_moe/moe_wgmma.h"

namespace atom::ops {

// What fits_moe_wgmma() says, and whole vectors of outputs.
bool fits_moe_wide(const FusedMoeGpuCall& call);
gpuError_t launch_moe_wide(const FusedMoeGpuCall& call,
                           const MoeWgmmaScratch& scratch,
                           gpuStream_t stream);

}  // namespace atom::ops
