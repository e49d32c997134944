// Inside fused_moe for one token by experts in bfloat16 or MXFP4 on Hopper: a lane's products.
#pragma once

#include "ops/fused_moe/moe_one_rows_stage.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"

namespace atom::ops::device::moe_one_rows {

// Of a lane: of a row of each half.
struct RowCodes {
  uint4 bits[2];
  uint32_t exponents[2];
};

template <typename W>
__device__ __forceinline__ void multiply_codes(const RowCodes& codes,
                                               const uint4 (&factors)[RowFormat<W>::kXVectors],
                                               float (&parts)[2][4]) {
  using Format = RowFormat<W>;
  uint32_t units[2] = {};
  if constexpr (Format::kHasExponents) {
#pragma unroll
    for (int i = 0; i < 2; ++i) units[i] = Format::factors(codes.exponents[i]);
  }
#pragma unroll
  for (int v = 0; v < Format::kXVectors; ++v) {
    uint32_t expanded[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t pairs[4];
      Format::expand(codes.bits[i], v, units[i], pairs);
#pragma unroll
      for (int p = 0; p < 4; ++p) expanded[p / 2][p % 2 * 2 + i] = pairs[p];
    }
    multiply_tile(parts[0], expanded[0], factors[v].x, factors[v].y);
    multiply_tile(parts[1], expanded[1], factors[v].z, factors[v].w);
  }
}

}  // namespace atom::ops::device::moe_one_rows
