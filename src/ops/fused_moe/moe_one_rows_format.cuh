// Inside fused_moe for one token on Hopper: how it expands MXFP4.
#pragma once

#include "ops/fused_moe/moe_stream_format.cuh"

namespace atom::ops::device {

// MXFP4, with one shift for all of what is not at its word's end.
struct OneFloat4 {};

template <>
struct RowFormat<OneFloat4> : RowFormat<Float4> {
  static __device__ void expand(const uint4& bits, int v, uint32_t factors, uint32_t (&pairs)[4]) {
    constexpr uint32_t kCode = 0x81c081c0;  // of a bfloat16, in both halves
    const uint32_t word = v == 0 ? bits.x : v == 1 ? bits.y : v == 2 ? bits.z : bits.w;
    const uint32_t others = word >> 8;
    pairs[0] = (word & 0x000f000f) * 0x1040 & kCode;
    pairs[1] = (word & 0x00f000f0) * 0x104 & kCode;
    pairs[2] = (others & 0x000f000f) * 0x1040 & kCode;
    pairs[3] = (others & 0x00f000f0) * 0x104 & kCode;
#pragma unroll
    for (uint32_t& pair : pairs) pair = multiply_bfloat16_pair(pair, factors);
  }
};

}  // namespace atom::ops::device
