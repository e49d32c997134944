// Inside fused_moe by rows of matrices on Hopper: what the kernel has of each format.
#pragma once

#include "ops/fused_moe/moe_rows.h"
#include "ops/fused_moe/moe_stream_format.cuh"

namespace atom::ops::device {

// MXFP4 whose tiles four warpgroups share: more warps expand codes at a time, where sums of few
// tokens leave them registers.
struct QuarterFloat4 {};

template <>
struct RowFormat<QuarterFloat4> : RowFormat<Float4> {};

// The same of matrices as images.
struct ImageFloat4 {};

template <>
struct RowFormat<ImageFloat4> : RowFormat<Float4> {
  // Codes are as image_codes() has them.
  static __device__ void expand(const uint4& bits, int v, uint32_t factors, uint32_t (&pairs)[4]) {
    constexpr uint32_t kCode = 0x81c081c0;  // of a bfloat16, in both halves
    const uint32_t word = v == 0 ? bits.x : v == 1 ? bits.y : v == 2 ? bits.z : bits.w;
    // Products have the right bits among others, and are no work of those units that shift.
    const uint32_t upper = word >> 8 | word << 24;
    pairs[0] = (word & 0x02700270) * 0x44 & kCode;
    pairs[1] = (word & 0x008d008d) * 0x110 & kCode;
    pairs[2] = (upper & 0x02700270) * 0x44 & kCode;
    pairs[3] = (upper & 0x008d008d) * 0x110 & kCode;
#pragma unroll
    for (uint32_t& pair : pairs) pair = multiply_bfloat16_pair(pair, factors);
  }
};

struct QuarterImageFloat4 {};

template <>
struct RowFormat<QuarterImageFloat4> : RowFormat<ImageFloat4> {};

// bfloat16 whose first matrix begins to be copied before choices are arranged.
struct EarlyBFloat16 {};

template <>
struct RowFormat<EarlyBFloat16> : RowFormat<BFloat16> {};

namespace rows {

// A chunk is what a stage has of k. With registers a lane has 16 adjacent bytes of a row's 64 of a
// chunk, of which it makes its part of what each product of 16 columns takes: two pairs of columns.
// So place p of a chunk of x is column column_at(p): product p / 16, pair p / 8 % 2 of lane
// p / 2 % 4.
template <typename W>
struct Chunk;

template <>
struct Chunk<BFloat16> {
  static constexpr int kColumns = 64;
  static constexpr int kRowSize = 128;  // bytes of a matrix's row
  static constexpr bool kFromRegisters = false;
  static constexpr bool kImages = false;
  static constexpr bool kEarly = false;
  static constexpr int kBlocks = 1;  // of 64 rows of a warpgroup
  static constexpr int kGroups = 2;  // warpgroups that multiply

  static __host__ __device__ constexpr int column_at(int place) { return place; }
};

// RowFormat<Float4> makes pairs of columns that are 4 apart.
template <>
struct Chunk<Float4> {
  static constexpr int kColumns = 128;
  static constexpr int kRowSize = 64;
  static constexpr bool kFromRegisters = true;
  static constexpr bool kImages = false;
  static constexpr bool kEarly = false;
  static constexpr int kBlocks = 2;
  static constexpr int kGroups = 2;

  static __host__ __device__ constexpr int column_at(int place) {
    const int product = place / 16, pair = product % 2 * 2 + place / 8 % 2;
    return place / 2 % 4 * 32 + product / 2 * 8 + pair + place % 2 * 4;
  }
};

template <>
struct Chunk<QuarterFloat4> : Chunk<Float4> {
  static constexpr int kBlocks = 1;
  static constexpr int kGroups = 4;
};

template <>
struct Chunk<ImageFloat4> : Chunk<Float4> {
  static constexpr bool kImages = true;
};

template <>
struct Chunk<QuarterImageFloat4> : Chunk<QuarterFloat4> {
  static constexpr bool kImages = true;
};

template <>
struct Chunk<EarlyBFloat16> : Chunk<BFloat16> {
  static constexpr bool kEarly = true;
};

}  // namespace rows
}  // namespace atom::ops::device
