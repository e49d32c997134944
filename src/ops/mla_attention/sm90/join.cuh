// Inside latent attention for Hopper: rows whose keys several blocks had.
#pragma once

#include "ops/mla_attention/sm90/items.cuh"

namespace atom::ops::mla_device {

constexpr int kJoinThreads = 256;
constexpr int kJoinTeams = 2;  // of threads, which take every second part
constexpr int kJoinTeamThreads = kJoinThreads / kJoinTeams;
constexpr int kJoinColumns = kRank / kJoinTeamThreads;  // of a thread
static_assert(kJoinColumns == 4);
constexpr int kMostParts = 512;

struct JoinMemory {
  float factors[kMostParts];
  float4 sums[kJoinTeamThreads];
};

// Parts of an item are at places 2 * first + 1, then 2 * (first + 1), 2 * (first + 2) ...
struct JoinedItem {
  int first_block;
  int num_parts;

  __device__ int64_t place(int part) const {
    return int64_t{first_block + part} * 2 + (part == 0 ? 1 : 0);
  }
};

__device__ inline JoinedItem find_parts(
    const Work& work, int share, int unit_index, const Unit& unit, int item) {
  const int begin = work.line[1 + unit_index] + item * unit.item_length();
  const Shares shares = shares_of(begin, unit.num_tiles, share);
  return {shares.first, shares.count};
}

// What weights its part's sums have in the row's softmax; by one warp.
__device__ inline void weigh_parts(const Work& work,
                                   const JoinedItem& item,
                                   int row,
                                   float* factors) {
  const int lane = threadIdx.x % 32;
  float base = -INFINITY;
  for (int part = lane; part < item.num_parts; part += 32) {
    base = fmaxf(base, work.partial_softmax[item.place(part) * kRows + row].x);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    base = fmaxf(base, __shfl_xor_sync(kAllLanes, base, distance));
  }
  float sum = 0;
  for (int part = lane; part < item.num_parts; part += 32) {
    const float2 softmax = work.partial_softmax[item.place(part) * kRows + row];
    const float factor =
        softmax.x == -INFINITY ? 0.f : attention_device::exp2_fast(softmax.x - base);
    factors[part] = factor;
    sum += factor * softmax.y;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  const float scale = sum == 0 ? 0.f : 1.f / sum;
  for (int part = lane; part < item.num_parts; part += 32) factors[part] *= scale;
}

// This thread's columns over the parts of its team.
__device__ inline float4 sum_parts(const Work& work,
                                   const JoinedItem& item,
                                   int row,
                                   const float* factors) {
  const int team = threadIdx.x / kJoinTeamThreads, thread = threadIdx.x % kJoinTeamThreads;
  const float* out = work.partial_out + int64_t{row} * kRank + thread * kJoinColumns;
  float4 sum = {0, 0, 0, 0};
#pragma unroll 8
  for (int part = team; part < item.num_parts; part += kJoinTeams) {
    const float4 value = *reinterpret_cast<const float4*>(out + item.place(part) * (kRows * kRank));
    const float factor = factors[part];
    sum.x = fmaf(value.x, factor, sum.x);
    sum.y = fmaf(value.y, factor, sum.y);
    sum.z = fmaf(value.z, factor, sum.z);
    sum.w = fmaf(value.w, factor, sum.w);
  }
  return sum;
}

__device__ inline void join_row(const Work& work,
                                const Unit& unit,
                                const JoinedItem& item,
                                int item_index,
                                int row,
                                JoinMemory& memory) {
  if (threadIdx.x < 32) weigh_parts(work, item, row, memory.factors);
  __syncthreads();
  const float4 sum = sum_parts(work, item, row, memory.factors);
  const int thread = threadIdx.x % kJoinTeamThreads;
  if (threadIdx.x >= kJoinTeamThreads) memory.sums[thread] = sum;
  __syncthreads();
  if (threadIdx.x >= kJoinTeamThreads) return;
  const float4 other = memory.sums[thread];
  const int unit_row = item_index * kRows + row;
  const int64_t token = unit.first_token + unit_row / work.num_heads();
  const int64_t head = unit_row % work.num_heads();
  const MlaAttentionArgs& params = work.params;
  gpu_bfloat16* target = static_cast<gpu_bfloat16*>(params.out) + token * params.out_strides[0] +
                         head * params.out_strides[1] + thread * kJoinColumns;
  *reinterpret_cast<uint2*>(target) = {
      attention_device::pack<gpu_bfloat16>(sum.x + other.x, sum.y + other.y),
      attention_device::pack<gpu_bfloat16>(sum.z + other.z, sum.w + other.w)};
}

}  // namespace atom::ops::mla_device
