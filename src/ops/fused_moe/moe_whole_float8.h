// Inside fused_moe: many tokens by experts in FP8 on Hopper, where experts have hundreds of rows.
// Tokens are on the side of the products that comes in whole 64s, so that what a thread has of a
// tile are whole parts of two rows: it scales, activates and stores them without the others.
#pragma once

#include "ops/fused_moe/moe_float8.h"
#include "ops/fused_moe/moe_token_codes.h"

namespace atom::ops {

// Choices are sorted by tiles of kMoeWholeFloat8Tokens. Scales are [groups, rows] here.
constexpr int kMoeWholeFloat8Tokens = 256;

// What fits_moe_float8() says, with whole groups of columns.
bool fits_moe_whole_float8(const FusedMoeGpuCall& call);
// x is quantized unless `codes` have it so.
gpuError_t launch_moe_whole_float8(const FusedMoeGpuCall& call,
                                   const MoeTokenCodes& codes,
                                   const MoeFloat8Scratch& scratch,
                                   gpuStream_t stream);

}  // namespace atom::ops
