// Inside fused_moe on Hopper: few choices sorted by expert without one block's work for all of
// them. Every block finds the row of one choice among all, and one more counts them.
#pragma once

#include "ops/fused_moe/moe_groups.cuh"

namespace atom::ops::device {

constexpr int kFewChoices = 1024;
constexpr int kArrangeThreads = 128;

// row_begins and tile_begins, by a block.
inline __device__ void count_rows(const FusedMoeGpuCall& call,
                                  const FusedMoeGpuScratch& scratch,
                                  int tile_rows) {
  __shared__ int row_begins[kMaxGpuExperts + 1], tile_begins[kMaxGpuExperts + 1];
  for (int e = threadIdx.x; e <= call.num_experts; e += kArrangeThreads) row_begins[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < call.num_tokens * call.top_k; i += kArrangeThreads) {
    const int place = place_of(call, i);
    if (place >= 0) atomicAdd(&row_begins[place + 1], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < call.num_experts; e += kArrangeThreads) {
    tile_begins[e + 1] = (row_begins[e + 1] + tile_rows - 1) / tile_rows;
  }
  __syncthreads();
  if (threadIdx.x < kWarpSize) add_up(row_begins, call.num_experts);
  if (threadIdx.x / kWarpSize == 1) add_up(tile_begins, call.num_experts);
  __syncthreads();
  for (int e = threadIdx.x; e <= call.num_experts; e += kArrangeThreads) {
    scratch.row_begins[e] = row_begins[e];
    scratch.tile_begins[e] = tile_begins[e];
  }
}

// The row of a choice, or -1 where its expert is not here; by a block, which notes it.
inline __device__ int find_row(const FusedMoeGpuCall& call,
                               const FusedMoeGpuScratch& scratch,
                               int choice) {
  __shared__ int warp_counts[kArrangeThreads / kWarpSize];
  const int own = place_of(call, choice);
  if (own < 0) return -1;
  int count = 0;
  for (int i = threadIdx.x; i < call.num_tokens * call.top_k; i += kArrangeThreads) {
    const int place = place_of(call, i);
    count += place >= 0 && (place < own || (place == own && i < choice)) ? 1 : 0;
  }
  count = reduce_lanes(count, kWarpSize, Sum());
  if (threadIdx.x % kWarpSize == 0) warp_counts[threadIdx.x / kWarpSize] = count;
  __syncthreads();
  int row = 0;
  for (const int some : warp_counts) row += some;
  if (threadIdx.x == 0) scratch.choices[row] = choice;
  return row;
}

}  // namespace atom::ops::device
