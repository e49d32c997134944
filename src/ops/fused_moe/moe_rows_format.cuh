// Inside fused_moe by rows of matrices on Hopper: what the kernel has of each format.
#pragma once

#include "ops/fused_moe/moe_rows.h"
#include "ops/fused_moe/moe_stream_format.cuh"

namespace atom::ops::device {

// MXFP4 whose tiles have half of the rows: the two warpgroups share them and take chunks by turns.
struct SplitFloat4 {};

template <>
struct RowFormat<SplitFloat4> : RowFormat<Float4> {
  // One shift for all of what is not at its word's end.
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

// MXFP4 whose tiles four warpgroups share: more warps expand codes at a time, where sums of few
// tokens leave them registers.
struct QuarterFloat4 {};

template <>
struct RowFormat<QuarterFloat4> : RowFormat<Float4> {};

// bfloat16 whose first matrix begins to be copied before choices are arranged.
struct EarlyBFloat16 {};

template <>
struct RowFormat<EarlyBFloat16> : RowFormat<BFloat16> {};

// The same in MXFP4.
struct EarlySplitFloat4 {};

template <>
struct RowFormat<EarlySplitFloat4> : RowFormat<SplitFloat4> {};

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
  static constexpr bool kSplits = false;  // chunks, not rows, between the warpgroups
  static constexpr bool kEarly = false;
  static constexpr int kBlocks = 1;  // of 64 rows of a warpgroup
  static constexpr int kGroups = 2;  // warpgroups that multiply

  static __host__ __device__ constexpr int column_at(int place) { return place; }
  static __host__ __device__ constexpr int place_of(int column) { return column; }
};

// RowFormat<Float4> makes pairs of columns that are 4 apart.
template <>
struct Chunk<Float4> {
  static constexpr int kColumns = 128;
  static constexpr int kRowSize = 64;
  static constexpr bool kFromRegisters = true;
  static constexpr bool kSplits = false;
  static constexpr bool kEarly = false;
  static constexpr int kBlocks = 2;
  static constexpr int kGroups = 2;

  static __host__ __device__ constexpr int column_at(int place) {
    const int product = place / 16, pair = product % 2 * 2 + place / 8 % 2;
    return place / 2 % 4 * 32 + product / 2 * 8 + pair + place % 2 * 4;
  }

  static __host__ __device__ constexpr int place_of(int column) {
    const int pair = column % 4, product = column % 32 / 8 * 2 + pair / 2;
    return product * 16 + pair % 2 * 8 + column / 32 * 2 + column % 8 / 4;
  }
};

template <>
struct Chunk<SplitFloat4> : Chunk<Float4> {
  static constexpr bool kSplits = true;
};

template <>
struct Chunk<QuarterFloat4> : Chunk<Float4> {
  static constexpr int kBlocks = 1;
  static constexpr int kGroups = 4;
};

template <>
struct Chunk<EarlyBFloat16> : Chunk<BFloat16> {
  static constexpr bool kEarly = true;
};

template <>
struct Chunk<EarlySplitFloat4> : Chunk<SplitFloat4> {
  static constexpr bool kEarly = true;
};

// With the activation a tile of W has the outputs of a chunk of the second matrix, or a half of
// them. Output `index` of the tile, in the order in which warps have them, is that of column
// output_at(index) of its own: so that those of a warp are at neighboring places, or, of half of a
// chunk, so that lanes read neighboring rows of the matrix, which are in different banks.
template <typename W>
__host__ __device__ constexpr int output_at(int index) {
  return Chunk<W>::kSplits ? index : Chunk<W>::column_at(index);
}

// Where a copy with a swizzle of 128 bytes puts 16 bytes of a panel's row.
__host__ __device__ constexpr int place_in_panel(int row, int vector) {
  return row * 128 + (vector ^ row % 8) * 16;
}

}  // namespace rows
}  // namespace atom::ops::device
