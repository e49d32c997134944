// Inside fused_moe: many tokens on Hopper, as by moe_many.h but with tokens on the side of the
// product that comes in any multiple of 32, so that an expert's last tile is no whole one, and with
// tokens that reach two blocks by one copy.
#pragma once

#include "ops/fused_moe/moe_many.h"

namespace atom::ops {

// bfloat16 throughout, with whole vectors of 16 bytes in rows, silu or the clamped activation.
bool fits_moe_wide(const FusedMoeGpuCall& call);
gpuError_t launch_moe_wide(const FusedMoeGpuCall& call,
                           const MoeManyScratch& scratch,
                           gpuStream_t stream);

}  // namespace atom::ops
