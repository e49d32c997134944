// Inside fused_moe: many tokens by experts in FP8 on Hopper. The matrix units multiply codes by
// codes, with tokens on the side of the product that comes in any multiple of 16, so that an
// expert's last tile is no whole one, and with rows of a matrix that reach two blocks by one copy.
#pragma once

#include "ops/fused_moe/moe_float8.h"

namespace atom::ops {

// Choices are sorted by tiles of kMoeWideFloat8Tokens. Scales are [groups, rows] here.
constexpr int kMoeWideFloat8Tokens = 256;

// What fits_moe_float8() says.
bool fits_moe_wide_float8(const FusedMoeGpuCall& call);
gpuError_t launch_moe_wide_float8(const FusedMoeGpuCall& call,
                                  const MoeFloat8Scratch& scratch,
                                  gpuStream_t stream);

}  // namespace atom::ops
