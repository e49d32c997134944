// Inside fused_moe for few tokens by experts in FP8 on Hopper: what a block has in shared memory.
#pragma once

#include "ops/fused_moe/moe_skinny_sizes.cuh"

namespace atom::ops::device::moe_skinny {

template <int kColumns>
class Shared {
 public:
  static constexpr int kStageSize = kChunkPanels * kPanelBytes;
  static constexpr int kXPanelBytes = kColumns * kPanelSize;
  static constexpr int kXPanelScales = kColumns * int{sizeof(float)};
  static constexpr int kXCodesSize = kChunkPanels * kXPanelBytes;
  static constexpr int kXStageSize = kXCodesSize + 1024;
  // Few tokens' cost little, and their items are short.
  static constexpr int kNumXStages = kColumns == 8 ? 4 : 2;
  // A row of codes that are on their way out, padded so that rows begin in different banks.
  static constexpr int kCodesStride = kPanelSize + kVectorSize;

 private:
  static constexpr int kMaxSize = 227 << 10;
  static constexpr int kBarrierSize = 8;
  static constexpr int kX = 0;
  static constexpr int kMatrices = kX + kNumXStages * kXStageSize;
  static constexpr int kRestSize =
      kColumns * kCodesStride + kConsumerWarps * kColumns * int{sizeof(float)} +
      kNumItems * int{sizeof(Item)} + 512 + kMaxMoeSkinnyGroups * int{sizeof(TokenGroup)} +
      kMaxMoeSkinnyChoices * int{sizeof(uint16_t)};

 public:
  static constexpr int kNumStages = (kMaxSize - kMatrices - kRestSize) / kStageSize;
  static_assert(kNumStages >= 4 && kXStageSize % 1024 == 0 && kStageSize % 1024 == 0 &&
                kChunkPanels * kXPanelScales <= 1024);

 private:
  static constexpr int kCodes = kMatrices + kNumStages * kStageSize;
  static constexpr int kLargest = kCodes + kColumns * kCodesStride;
  static constexpr int kItems = kLargest + kConsumerWarps * kColumns * int{sizeof(float)};
  static constexpr int kBarriers = kItems + kNumItems * int{sizeof(Item)};
  static constexpr int kGroups = kBarriers + 512;
  static constexpr int kRows = kGroups + kMaxMoeSkinnyGroups * int{sizeof(TokenGroup)};
  static constexpr int kNumBarriers = 2 * (kNumStages + kNumXStages) + 4 * kNumItems + 1;
  static_assert(kItems % kVectorSize == 0 && kNumBarriers * kBarrierSize <= 512);

  // What is planned with lies where the last stage is, which is the last to be copied to.
  static constexpr int kPlan = kMatrices + (kNumStages - 1) * kStageSize;
  static_assert(sizeof(PlanMemory<MoreTokens>) + kMaxGpuExperts * sizeof(uint16_t) <= kStageSize);

 public:
  static constexpr int kSize = kRows + kMaxMoeSkinnyChoices * int{sizeof(uint16_t)};
  static_assert(kSize <= kMaxSize);

  __device__ explicit Shared(uint8_t* memory) : memory_(memory), base_(shared_address(memory)) {}

  // [kChunkPanels][kStageRows, kPanelSize], 128-byte swizzled
  __device__ uint32_t matrix(int stage) const { return base_ + kMatrices + stage * kStageSize; }
  // [kChunkPanels][kColumns, kPanelSize], likewise, and [kChunkPanels][kColumns]
  __device__ uint32_t x(int stage) const { return base_ + kX + stage * kXStageSize; }
  __device__ uint32_t x_scales(int stage) const { return x(stage) + kXCodesSize; }

  // Each pair: something is there, and nobody needs it any more.
  __device__ uint32_t full(int stage) const { return barrier(stage); }
  __device__ uint32_t empty(int stage) const { return barrier(kNumStages + stage); }
  __device__ uint32_t x_full(int stage) const { return barrier(2 * kNumStages + stage); }
  __device__ uint32_t x_empty(int stage) const { return x_full(kNumXStages + stage); }
  __device__ uint32_t item_full(int slot) const { return x_full(2 * kNumXStages + slot); }
  __device__ uint32_t item_empty(int slot) const { return item_full(kNumItems + slot); }
  // What becomes of a tile is stored.
  __device__ uint32_t item_stored(int slot) const { return item_full(2 * kNumItems + slot); }
  // It is known, but for the scales.
  __device__ uint32_t item_known(int slot) const { return item_full(3 * kNumItems + slot); }
  // Nobody needs the plan any more; the list of choices is there.
  __device__ uint32_t plan_read() const { return item_full(4 * kNumItems); }

  __device__ Item& item(int slot) const { return reinterpret_cast<Item*>(memory_ + kItems)[slot]; }
  // [kColumns, kCodesStride]
  __device__ uint8_t* codes() const { return memory_ + kCodes; }
  // [kConsumerWarps, kColumns]
  __device__ float* largest() const { return reinterpret_cast<float*>(memory_ + kLargest); }
  __device__ TokenGroup* groups() const { return reinterpret_cast<TokenGroup*>(memory_ + kGroups); }
  // Of choices of the block's tokens.
  __device__ uint16_t* rows() const { return reinterpret_cast<uint16_t*>(memory_ + kRows); }
  // Or, where x comes in codes, the choices of groups' rows.
  __device__ uint16_t* choices() const { return rows(); }

  // Before anything is copied: the plan and of experts their first rows.
  template <typename Limits>
  __device__ PlanMemory<Limits>& plan() const {
    return *reinterpret_cast<PlanMemory<Limits>*>(memory_ + kPlan);
  }
  __device__ uint16_t* first_rows() const {
    return reinterpret_cast<uint16_t*>(memory_ + kPlan + sizeof(PlanMemory<MoreTokens>));
  }

  // By one thread; `has_codes`: x comes in codes.
  __device__ void init_barriers(bool has_codes) const {
    for (int i = 0; i < kNumStages; ++i) {
      init_barrier(full(i), 1);
      init_barrier(empty(i), kWarpgroupWarps);
    }
    for (int i = 0; i < kNumXStages; ++i) {
      // Each thread of a warp copies scales then.
      init_barrier(x_full(i), has_codes ? 1 + kWarpSize : 1);
      init_barrier(x_empty(i), kConsumerWarps);
    }
    for (int i = 0; i < kNumItems; ++i) {
      init_barrier(item_full(i), 1);
      init_barrier(item_empty(i), kConsumerWarps + 3);
      init_barrier(item_stored(i), kConsumerWarps);
      init_barrier(item_known(i), 1);
    }
    init_barrier(plan_read(), has_codes ? kWarps : kConsumerWarps);
    publish_barriers();
  }

 private:
  __device__ uint32_t barrier(int i) const { return base_ + kBarriers + i * kBarrierSize; }

  uint8_t* const memory_;
  const uint32_t base_;
};

// Between accesses of global memory by threads and copies of it. A fence of all memory would wait
// for whatever is under way: microseconds while copies are.
__device__ inline void fence_global_copies() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// visit(item, slot) for those of the block; `arrives` says of this thread that it tells when it is
// done with one, `kReadsScales` that it reads their scales.
template <bool kReadsScales, int kColumns, typename Visit>
__device__ void for_items(const Shared<kColumns>& shared, bool arrives, Visit&& visit) {
  for (StageCursor slot;; slot.advance(kNumItems)) {
    wait_for(kReadsScales ? shared.item_full(slot.index) : shared.item_known(slot.index),
             slot.parity);
    const Item& item = shared.item(slot.index);
    if (item.matrix == kNoMatrix) return;
    visit(item, slot);
    if (arrives) arrive(shared.item_empty(slot.index));
  }
}

// The panels of a chunk.
__device__ inline int panels_of(const MatrixArgs& matrix, int chunk) {
  return min(matrix.chunk_panels, matrix.num_panels - chunk * matrix.chunk_panels);
}

}  // namespace atom::ops::device::moe_skinny
