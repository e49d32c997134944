// Inside latent attention for Hopper: a warp that has the copy engine gather selected positions.
//
// A key is as many boxes of one row as there are panels, wherever it lies in the cache. The blocks
// of a team see the same keys: each asks for its share of every tile, which goes to all.
#pragma once

#include "ops/mla_attention/sm90/boxes.cuh"

namespace atom::ops::mla_device {

template <int kTeam>
class GatherProducer {
 public:
  __device__ GatherProducer(const Work& work, const CUtensorMap& map, const Buffers& buffers)
      : work_(work), map_(map), buffers_(buffers), thread_(threadIdx.x % kWarpgroup) {}

  // All threads bring the queries, the first warp the keys.
  __device__ void run(const Share& share) {
    ItemWalk walk(work_, share);
    Item item;
    while (walk.next(item)) {
      if (item.first_tile == item.last_tile) continue;
      Keys keys[2];
      if (thread_ < 32) find_pair(item, item.first_tile, keys);
      device::wait_for(buffers_.queries_empty(), queries_parity_ ^ 1);
      queries_parity_ ^= 1;
      copy_queries(work_, buffers_, item);
      if (thread_ < 32) load_item(item, keys);
    }
  }

 private:
  static constexpr int kPerLane = kKeys / kTeam / 32;  // keys of a tile

  // Where this lane's keys of a tile lie; behind the cache: zeros.
  struct Keys {
    int32_t slots[kPerLane];
  };

  __device__ void load_item(const Item& item, Keys (&keys)[2]) {
    for (int tile = item.first_tile; tile < item.last_tile; tile += 2) {
      const bool has_second = tile + 1 < item.last_tile;
      Keys next[2];
      find_pair(item, tile + 2, next);
      load_group<kLeft0>(keys[0], parity0_);
      if (has_second) load_group<kRight1>(keys[1], parity1_);
      load_group<kRight0>(keys[0], parity0_);
      if (has_second) load_group<kLeft1>(keys[1], parity1_);
      parity0_ ^= 1;
      if (has_second) parity1_ ^= 1;
      keys[0] = next[0];
      keys[1] = next[1];
    }
  }

  __device__ int place_of(int i) const { return (work_.rank() * kPerLane + i) * 32 + thread_; }

  // Of the pair of tiles that begins with `tile`, which the second-level cache is asked for.
  __device__ void find_pair(const Item& item, int tile, Keys (&keys)[2]) const {
    const PagedBatchArgs& batch = work_.params.batch;
#pragma unroll
    for (int i = 0; i < 2 * kPerLane; ++i) {
      const int of_pair = i / kPerLane;
      const int key = (tile + of_pair) * kKeys + place_of(i % kPerLane);
      int32_t& slot = keys[of_pair].slots[i % kPerLane];
      slot = tile < item.last_tile ? slot_of_key(work_, item, key) : -1;
      if (slot >= 0) {
        constexpr int kSlotBytes = kWidth * 2;
        ask_ahead(static_cast<const char*>(work_.params.cache) + int64_t{slot} * kSlotBytes,
                  kSlotBytes);
      } else {
        slot = static_cast<int32_t>(batch.num_blocks * batch.block_size);
      }
    }
  }

  template <int kGroup>
  __device__ void load_group(const Keys& keys, uint32_t parity) const {
    constexpr int kTile = kGroup == kLeft0 || kGroup == kRight0 ? 0 : 1;
    constexpr int kGroupPanels = kHalfPanels + (has_panel<kGroup>(kRopePanel) ? 1 : 0);
    const uint32_t barrier = buffers_.full(kGroup);
    device::wait_for(buffers_.empty(kGroup), parity ^ 1);
    if (thread_ == 0) device::arrive_expecting(barrier, kGroupPanels * kPanelBytes);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const uint32_t target = buffers_.tile(kTile) + place_of(i) * 128;
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        if (!has_panel<kGroup>(panel)) continue;
        copy_to_team<kTeam>(
            target + panel * kPanelBytes, map_, panel * kPanelColumns, keys.slots[i], barrier);
      }
    }
  }

  const Work& work_;
  const CUtensorMap& map_;
  const Buffers& buffers_;
  const int thread_;
  uint32_t queries_parity_ = 0;
  uint32_t parity0_ = 0;
  uint32_t parity1_ = 0;
};

}  // namespace atom::ops::mla_device
