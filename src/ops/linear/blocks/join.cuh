// Inside the linear in FP8 with scales of groups on Hopper: the sums of the parts of k, each in a
// block of the cluster, become those of the whole. Every block finishes some of the warps: the
// others write to its shared memory what theirs have of the same rows and columns.
#pragma once

#include "ops/linear/blocks/shape.cuh"

namespace atom::ops::device::blocks {

template <typename S>
__device__ inline bool finishes(int warp) {
  return warp % S::kParts == Seat<S>().part;
}

// Lanes lie side by side, so that neither side meets conflicts of banks.
__device__ inline uint32_t brought_offset(int sum, int lane) {
  return (sum / 4 * kWarpSize + lane) * int{sizeof(float4)};
}

__device__ inline float4 brought_sums(uint32_t address) {
  const uint4 bits = load_shared(address);
  return make_float4(__uint_as_float(bits.x),
                     __uint_as_float(bits.y),
                     __uint_as_float(bits.z),
                     __uint_as_float(bits.w));
}

// The sums of a warp that another block finishes.
template <typename S>
__device__ void bring_sums(const Shared<S>& shared,
                           int warp,
                           int lane,
                           const float (&sums)[S::kColumns / 2]) {
  const int part = Seat<S>().part, finisher = warp % S::kParts;
  if (finisher == part) return;
  const int source = part < finisher ? part : part - 1;
  const int rank = cluster_rank() + (finisher - part) * S::kSharers;
  const uint32_t target = address_in(rank, shared.brought(warp / S::kParts, source));
#pragma unroll
  for (int i = 0; i < S::kColumns / 2; i += 4) {
    store_in_cluster(target + brought_offset(i, lane),
                     make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]));
  }
}

// Adds up the parts by ascending k, whichever of them is this block's: the order is the same for
// all rows.
template <typename S>
__device__ void join_sums(const Shared<S>& shared,
                          int warp,
                          int lane,
                          float (&sums)[S::kColumns / 2]) {
  const int part = Seat<S>().part;
#pragma unroll
  for (int i = 0; i < S::kColumns / 2; i += 4) {
    const float4 own = make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int p = 0; p < S::kParts; ++p) {
      const int source = p < part ? p : p - 1;
      const uint32_t address = shared.brought(warp / S::kParts, source) + brought_offset(i, lane);
      const float4 term = p == part ? own : brought_sums(address);
      sum = make_float4(sum.x + term.x, sum.y + term.y, sum.z + term.z, sum.w + term.w);
    }
    sums[i] = sum.x;
    sums[i + 1] = sum.y;
    sums[i + 2] = sum.z;
    sums[i + 3] = sum.w;
  }
}

}  // namespace atom::ops::device::blocks
