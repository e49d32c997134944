// Inside latent attention for Hopper: a warpgroup that loads by the copy engine.
//
// A tile's keys are boxes of 16, one block of the cache or a part of one, and 64 columns. The
// blocks of a team see the same keys: each asks for its share of the boxes, which go to all.
#pragma once

#include "ops/mla_attention/sm90/producer.cuh"

namespace atom::ops::mla_device {

constexpr int kBoxKeys = kStepKeys;

// The barrier's phase ends no earlier than the copies that this thread has begun.
__device__ inline void hold_for_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// A box of keys to every block of the team, whose barriers get its bytes.
template <int kTeam>
__device__ inline void copy_to_team(
    uint32_t target, const CUtensorMap& map, int column, int32_t slot, uint32_t barrier) {
  const uint64_t policy = device::read_once_policy();
  if constexpr (kTeam == 1) {
    device::copy_box(target, &map, column, slot, barrier, policy);
  } else {
    constexpr uint16_t kAll = (1 << kTeam) - 1;
    device::copy_box_to_all(target, &map, column, slot, barrier, kAll, policy);
  }
}

template <int kTeam, bool kBySteps>
class BoxProducer {
 public:
  __device__ BoxProducer(const Work& work, const CUtensorMap& map, const Buffers& buffers)
      : work_(work), map_(map), buffers_(buffers), thread_(threadIdx.x % kWarpgroup) {}

  __device__ void run(const Share& share) {
    ItemWalk walk(work_, share);
    Item item;
    while (walk.next(item)) {
      if (item.first_tile == item.last_tile) continue;
      int32_t slot = find_box(item, item.first_tile);
      const CutBox cut = find_cut(item);
      device::wait_for(buffers_.queries_empty(), queries_parity_ ^ 1);
      queries_parity_ ^= 1;
      copy_queries(work_, buffers_, item);
      for (int tile = item.first_tile; tile < item.last_tile; tile += 2) {
        const bool has_second = tile + 1 < item.last_tile;
        const int32_t next = find_box(item, tile + 2);
        const int cut_row0 = cut.row - tile * kKeys, cut_row1 = cut_row0 - kKeys;
        load_group<kLeft0>(slot, cut, cut_row0, parity0_);
        if (has_second) load_group<kRight1>(slot, cut, cut_row1, parity1_);
        load_group<kRight0>(slot, cut, cut_row0, parity0_);
        if (has_second) load_group<kLeft1>(slot, cut, cut_row1, parity1_);
        parity0_ ^= 1;
        if (has_second) parity1_ ^= 1;
        slot = next;
      }
    }
  }

 private:
  static constexpr int kBoxes = kKeys / kBoxKeys / kTeam;  // of a tile, by this block
  static constexpr int kBoxRowBytes = kBoxKeys * 128;      // of a panel
  static constexpr int kSlotBytes = kWidth * 2;

  // The box that an item's keys end in. What lies behind them in the cache may be no number at
  // all, so the copy engine must not bring it: the warpgroup's threads copy a row's 16 bytes each.
  struct CutBox {
    int row;                 // its first key; far behind all: there is none
    const char* row_source;  // null: a row of zeros
  };

  __device__ int32_t slot_of(const Item& item, int key) const {
    const PagedBatchArgs& batch = work_.params.batch;
    const auto block_size = static_cast<uint32_t>(batch.block_size);
    const auto at = static_cast<uint32_t>(key);
    const int32_t block = item.block_table[at / block_size];
    if (block < 0 || block >= batch.num_blocks) gpu_trap();
    return static_cast<int32_t>(block * block_size + at % block_size);
  }

  // Where in the cache the box of this lane of the first warp begins, for the pair of tiles that
  // begins with `tile`; behind the cache: zeros; -1: there is none. Asks for it ahead.
  __device__ int32_t find_box(const Item& item, int tile) const {
    if (thread_ >= 2 * kBoxes || tile + thread_ / kBoxes >= item.last_tile) return -1;
    const int key =
        (tile + thread_ / kBoxes) * kKeys + (work_.rank() * kBoxes + thread_ % kBoxes) * kBoxKeys;
    const int num_keys = item.num_keys - key;
    if (num_keys <= 0) {
      const PagedBatchArgs& batch = work_.params.batch;
      return static_cast<int32_t>(batch.num_blocks * batch.block_size);
    }
    if (num_keys < kBoxKeys) return -1;
    const int32_t slot = slot_of(item, key);
    ask_ahead(row_of(slot), kBoxKeys * kSlotBytes);
    return slot;
  }

  __device__ const char* row_of(int32_t slot) const {
    return static_cast<const char*>(work_.params.cache) + int64_t{slot} * kSlotBytes;
  }

  __device__ CutBox find_cut(const Item& item) const {
    constexpr int kNowhere = 0x7f000000;
    if (item.num_keys % kBoxKeys == 0) return {kNowhere, nullptr};
    const int first_key = item.num_keys / kBoxKeys * kBoxKeys, row = thread_ / 8;
    if (first_key + row >= item.num_keys) return {first_key, nullptr};
    return {first_key, row_of(slot_of(item, first_key) + row) + thread_ % 8 * 16};
  }

  // By the first warp, and all others where the item's keys end.
  template <int kGroup>
  __device__ void load_group(int32_t slots, const CutBox& cut, int cut_row, uint32_t parity) const {
    constexpr int kTile = kGroup == kLeft0 || kGroup == kRight0 ? 0 : 1;
    constexpr bool kIsLeft = has_panel<kGroup>(0);
    constexpr int kGroupPanels = kHalfPanels + (kIsLeft ? 1 : 0);
    const uint32_t tile = buffers_.tile(kTile), barrier = buffers_.full(kGroup);
    const bool is_cut = cut_row >= 0 && cut_row < kKeys;
    if (is_cut) {
      if (thread_ < 32) wait_for_all<kGroup>(parity);
      attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
      copy_cut<kGroup>(cut, tile + panel_offset(cut_row + thread_ / 8, thread_ % 8));
      hold_for_copies(barrier);
      attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
    }
    if (thread_ >= 32) return;
    constexpr int kBytes = kGroupPanels * kPanelBytes, kCutBytes = kGroupPanels * kBoxRowBytes;
    const int panel = !kIsLeft                ? kHalfPanels + thread_
                      : thread_ < kHalfPanels ? thread_
                                              : kRopePanel;
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int place = work_.rank() * kBoxes + box;
      if (kBySteps || box == 0) {
        device::wait_for(buffers_.empty(kGroup, kBySteps ? place : 0), parity ^ 1);
      }
      if (box == 0) {
        if (thread_ == 0) device::arrive_expecting(barrier, is_cut ? kBytes - kCutBytes : kBytes);
        __syncwarp();
      }
      const int32_t slot = __shfl_sync(kAllLanes, slots, kTile * kBoxes + box);
      if (thread_ >= kGroupPanels || slot < 0) continue;
      copy_to_team<kTeam>(tile + panel * kPanelBytes + place * kBoxRowBytes,
                          map_,
                          panel * kPanelColumns,
                          slot,
                          barrier);
    }
  }

  template <int kGroup>
  __device__ void wait_for_all(uint32_t parity) const {
#pragma unroll
    for (int step = 0; step < (kBySteps ? kSteps : 1); ++step) {
      device::wait_for(buffers_.empty(kGroup, step), parity ^ 1);
    }
  }

  template <int kGroup>
  __device__ void copy_cut(const CutBox& cut, uint32_t target) const {
    const bool exists = cut.row_source != nullptr;
    const char* source = exists ? cut.row_source : static_cast<const char*>(work_.params.cache);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      if (!has_panel<kGroup>(panel)) continue;
      attention_device::copy_async(target + panel * kPanelBytes, source + panel * 128, exists);
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
