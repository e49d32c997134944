// Inside latent attention for Hopper with a thread that relays: what lies where in shared memory,
// who waits for whom.
#pragma once

#include "ops/mla_attention/sm90/sizes.cuh"

namespace atom::ops::mla_device::relay {

constexpr int kCopyThreads = 64;  // of the warpgroup that loads

// A pair of tiles, each given back in two groups of panels. The first group of a tile is used by
// one warpgroup alone, which gives it back half a step earlier than the second:
//   tile 0: left half of the latent and the rotated part | right half
//   tile 1: right half | left half and the rotated part
// The weights of tile 0 have a place of their own; those of tile 1 take that of its rotated part.
enum Group { kLeft0 = 0, kRight1 = 1, kRight0 = 2, kLeft1 = 3, kNumGroups = 4 };

// Panels of a group in the order of their use.
__host__ __device__ constexpr int tile_of(Group group) {
  return group == kLeft0 || group == kRight0 ? 0 : 1;
}
__host__ __device__ constexpr bool is_left(Group group) {
  return group == kLeft0 || group == kLeft1;
}
__host__ __device__ constexpr int num_panels(Group group) {
  return is_left(group) ? kHalfPanels + 1 : kHalfPanels;
}
__host__ __device__ constexpr int panel_of(Group group, int i) {
  return !is_left(group) ? kHalfPanels + i : i < kHalfPanels ? i : kRopePanel;
}

struct Shared {
  static constexpr int kQueries = 0;
  static constexpr int kTiles = kQueries + kTileBytes;
  static constexpr int kWeights0 = kTiles + 2 * kTileBytes;
  static constexpr int kWeights1 = kTiles + kTileBytes + kRopePanel * kPanelBytes;
  static constexpr int kBases = kWeights0 + kPanelBytes;  // [2 tiles][kRows] float
  static constexpr int kSums = kBases + 2 * kRows * 4;    // [2][2 warpgroups][kRows] float
  static constexpr int kSlots = kSums + 4 * kRows * 4;    // [2][2 tiles][kKeys] int32
  static constexpr int kBarriers = kSlots + 4 * kKeys * 4;
  static constexpr int kNumBarriers = 3 * kNumGroups + 3;
  static constexpr int kItems = kBarriers + kNumBarriers * 8;  // of each warpgroup
  static constexpr int kItemBytes = 104;
  static constexpr int kBytes = kItems + 3 * kItemBytes;
};
static_assert(Shared::kBytes <= 227 * 1024);

struct Buffers {
  char* memory;
  uint32_t address;

  __device__ uint32_t queries() const { return address + Shared::kQueries; }
  __device__ uint32_t tile(int i) const { return address + Shared::kTiles + i * kTileBytes; }
  __device__ uint32_t weights(int i) const {
    return address + (i == 0 ? Shared::kWeights0 : Shared::kWeights1);
  }
  __device__ float* bases(int i) const {
    return reinterpret_cast<float*>(memory + Shared::kBases) + i * kRows;
  }
  __device__ float* sums(int parity, int group) const {
    return reinterpret_cast<float*>(memory + Shared::kSums) + (parity * 2 + group) * kRows;
  }
  __device__ int32_t* slots(int parity) const {
    return reinterpret_cast<int32_t*>(memory + Shared::kSlots) + parity * 2 * kKeys;
  }
  __device__ uint32_t barrier(int i) const { return address + Shared::kBarriers + i * 8; }
  __device__ uint32_t full(int group) const { return barrier(group); }
  __device__ uint32_t empty(int group) const { return barrier(kNumGroups + group); }
  // Copies to the group have ended, of which the matrix units do not know yet.
  __device__ uint32_t landed(int group) const { return barrier(2 * kNumGroups + 3 + group); }
  __device__ uint32_t queries_landed() const { return barrier(2 * kNumGroups + 2); }
  __device__ uint32_t queries_full() const { return barrier(2 * kNumGroups); }
  __device__ uint32_t queries_empty() const { return barrier(2 * kNumGroups + 1); }
};

// Barriers of the hardware; 0 is that of the block.
enum NamedBarrier {
  kBase0Barrier = 1,     // warpgroup 0 has written its rows' bases
  kWeights0Barrier = 2,  // ... and the weights of tile 0, against the bases of tile 1
  kWeights1Barrier = 3,  // warpgroup 1 has written bases and weights
  kSumsBarrier = 4,
  kProducerBarrier = 5,
  kItemBarrier = 6,  // + warpgroup that computes
};

__device__ inline void init_barriers(const Buffers& buffers, int num_loaders) {
  for (int group = 0; group < kNumGroups; ++group) {
    device::init_barrier(buffers.full(group), num_loaders);
    device::init_barrier(buffers.landed(group), kCopyThreads);
    device::init_barrier(buffers.empty(group), kWarpgroup / 32);
  }
  device::init_barrier(buffers.queries_full(), num_loaders);
  device::init_barrier(buffers.queries_landed(), kCopyThreads);
  device::init_barrier(buffers.queries_empty(), 2 * kWarpgroup / 32);
  device::publish_barriers();
}

}  // namespace atom::ops::mla_device::relay
