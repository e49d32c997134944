// Inside fused_moe by rows of matrices on Hopper: a block's first tile from the choices alone, for
// few tokens, so that its matrix can be copied before the choices are arranged.
#pragma once

#include "ops/fused_moe/moe_rows_stage.cuh"

namespace atom::ops::device::rows {

// Of a warp, two a lane.
constexpr int kMaxEarlyChoices = 2 * kWarpSize;
static_assert(kMaxGpuExperts <= kWarpSize * kWarpSize);

// By a whole warp. Every expert has one tile of rows: tokens are no more than a tile's. Of the tile
// the expert and the columns are known. False: the block has none.
inline __device__ bool find_first_tile(const MoeRowsArgs& args, MoeTile& tile) {
  const int lane = threadIdx.x % kWarpSize, num_choices = args.call.num_tokens * args.call.top_k;
  int places[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int choice = i * kWarpSize + lane;
    places[i] = choice < num_choices ? place_of(args.call, choice) : -1;
  }
  // Of the 32 experts that a lane stands for those that are chosen.
  uint32_t chosen = 0;
  for (int word = 0; word * kWarpSize < args.call.num_experts; ++word) {
    uint32_t bits = 0;
#pragma unroll
    for (const int place : places) {
      if (place >= 0 && place / kWarpSize == word) bits |= 1u << place % kWarpSize;
    }
    const uint32_t all = __reduce_or_sync(0xffffffffu, bits);
    if (lane == word) chosen = all;
  }
  int end = __popc(chosen);
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, end, distance);
    if (lane >= distance) end += other;
  }
  const int wanted = static_cast<int>(blockIdx.x) / args.num_column_tiles;
  const bool has_it = wanted < end && wanted >= end - __popc(chosen);
  const uint32_t holders = __ballot_sync(0xffffffffu, has_it);
  if (holders == 0) return false;
  int expert = 0;
  if (has_it) {
    for (int i = end - __popc(chosen); i < wanted; ++i) chosen &= chosen - 1;
    expert = lane * kWarpSize + __ffs(chosen) - 1;
  }
  tile = {};
  tile.expert = __shfl_sync(0xffffffffu, expert, __ffs(holders) - 1);
  tile.column_tile = static_cast<int>(blockIdx.x) % args.num_column_tiles;
  return true;
}

}  // namespace atom::ops::device::rows
