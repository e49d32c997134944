// Inside fused_moe for few tokens by experts in FP8 on Hopper: shared memory, and the threads that
// copy matrices and rows of x to the stages.
//
// A stage has 128 of k of a tile's 256 rows of a matrix, and of a group's rows of x with their
// scales. Of the first matrix a tile is 128 gates and their ups.
#pragma once

#include <cuda.h>

#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_skinny_plan.cuh"

namespace atom::ops::device::moe_skinny {

constexpr int kPanelSize = 128;  // bytes of k, as many codes
constexpr int kHalfRows = 128;   // of a tile
constexpr int kHalfSize = kHalfRows * kPanelSize;
constexpr int kWarpgroupWarps = 4, kConsumerWarps = 8;
constexpr int kNumConsumers = kConsumerWarps * kWarpSize;
constexpr int kMatrixWarp = kConsumerWarps, kXWarp = kMatrixWarp + 1, kItemWarp = kXWarp + 1;
static_assert((kItemWarp + 1) * kWarpSize == kThreads);
constexpr int kMaxPanels = 64;

// Places of counters.
constexpr int kRowsReady = 0, kItemsTaken = 1, kTilesReady = 2;
static_assert(kTilesReady + kMaxMoeSkinnyGroups == kNumMoeSkinnyCounters);

// Of a choice whose expert is not here.
constexpr uint16_t kNoRow = 0xffff;

// One of the two matrices, of all experts.
struct MatrixArgs {
  // In boxes of 128 bytes of half a tile's rows, and of a group's rows.
  CUtensorMap matrices, x;
  ExpertMatrices own;
  const float* x_scales;  // [num_panels, scratch.num_rows]
  int num_rows;           // of an expert
  int half_stride;        // rows of the matrix from a tile's first half to its second
  int tile_stride;        // and from tile to tile
  int num_tiles;
  int num_panels;
  bool has_blocks;  // scales of 128 x 128, else of rows
};

struct MoeSkinnyArgs {
  MatrixArgs matrices[2];
  FusedMoeGpuCall call;
  MoeSkinnyScratch scratch;
};

struct TokenGroup {
  uint16_t expert, first_row, num_rows;
};

// A tile of a matrix and the tokens that it meets, with the scales of the tile's blocks: they come
// from memory, and would be waited for where they are needed.
struct alignas(kVectorSize) Item {
  float2 scales[kMaxPanels];  // of both halves
  int matrix;                 // 0: gates and ups, 1: down, kNoMatrix: there are no more
  int group, tile;
};
constexpr int kNoMatrix = -1;
constexpr int kNumItems = 3;  // of a block at once: multiplied, copied, taken

// Shared memory: stages, scales of their rows of x, then the rest.
template <int kColumns>
class Shared {
 public:
  static constexpr int kXSize = kColumns * kPanelSize;
  static constexpr int kScalesSize = kColumns * int{sizeof(float)};
  static constexpr int kStageSize = 2 * kHalfSize + kXSize;
  // A row of codes that are on their way out, padded so that rows begin in different banks.
  static constexpr int kCodesStride = kPanelSize + kVectorSize;

 private:
  static constexpr int kBarrierSize = 8;
  static constexpr int kMaxSize = 224 << 10;
  static constexpr int kRestSize = kColumns * kCodesStride +
                                   kConsumerWarps * kColumns * int{sizeof(float)} +
                                   kNumItems * (int{sizeof(Item)} + 2 * kBarrierSize) +
                                   kMaxMoeSkinnyGroups * int{sizeof(TokenGroup)} +
                                   kMaxMoeSkinnyChoices * int{sizeof(uint16_t)} + 1024;

 public:
  static constexpr int kNumStages =
      (kMaxSize - kRestSize) / (kStageSize + kScalesSize + 2 * kBarrierSize);
  static_assert(kNumStages >= 4 && kStageSize % 1024 == 0 && kScalesSize % kVectorSize == 0);

 private:
  static constexpr int kScales = kNumStages * kStageSize;
  static constexpr int kCodes = kScales + kNumStages * kScalesSize;
  static constexpr int kLargest = kCodes + kColumns * kCodesStride;
  static constexpr int kBarriers = kLargest + kConsumerWarps * kColumns * int{sizeof(float)};
  static constexpr int kItemBarriers = kBarriers + 2 * kNumStages * kBarrierSize;
  static constexpr int kItems = kItemBarriers + 2 * kNumItems * kBarrierSize;
  static constexpr int kGroups = kItems + kNumItems * int{sizeof(Item)};

 public:
  static constexpr int kRows = kGroups + kMaxMoeSkinnyGroups * int{sizeof(TokenGroup)};
  static constexpr int kSize = kRows + kMaxMoeSkinnyChoices * int{sizeof(uint16_t)};
  static_assert(kSize <= kMaxSize && kItems % kVectorSize == 0 &&
                sizeof(PlanMemory<MoreTokens>) + kMaxGpuExperts * sizeof(uint16_t) <= kStageSize);

  __device__ explicit Shared(uint8_t* memory) : memory_(memory), base_(shared_address(memory)) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t x(int stage) const { return matrix(stage) + 2 * kHalfSize; }
  __device__ uint32_t scales(int stage) const { return base_ + kScales + stage * kScalesSize; }
  // Arrivals: of both copying threads, and of the warps that multiply.
  __device__ uint32_t full(int stage) const { return base_ + kBarriers + stage * kBarrierSize; }
  __device__ uint32_t empty(int stage) const { return full(kNumStages + stage); }
  // Arrivals: of the warp that takes items, and of those that use them.
  __device__ uint32_t item_full(int slot) const {
    return base_ + kItemBarriers + slot * kBarrierSize;
  }
  __device__ uint32_t item_empty(int slot) const { return item_full(kNumItems + slot); }
  __device__ Item& item(int slot) const {
    return reinterpret_cast<Item*>(memory_ + kItems)[slot];
  }
  // [kColumns, kCodesStride]
  __device__ uint8_t* codes() const { return memory_ + kCodes; }
  // [kConsumerWarps, kColumns]
  __device__ float* largest() const { return reinterpret_cast<float*>(memory_ + kLargest); }
  __device__ TokenGroup* groups() const { return reinterpret_cast<TokenGroup*>(memory_ + kGroups); }
  // Of choices of the block's tokens.
  __device__ uint16_t* rows() const { return reinterpret_cast<uint16_t*>(memory_ + kRows); }
  // Of experts; where stages are, before anything is copied.
  __device__ uint16_t* first_rows() const {
    return reinterpret_cast<uint16_t*>(memory_ + sizeof(PlanMemory<MoreTokens>));
  }
  // Likewise.
  template <typename Limits>
  __device__ PlanMemory<Limits>& plan() const {
    return *reinterpret_cast<PlanMemory<Limits>*>(memory_);
  }

 private:
  uint8_t* const memory_;
  const uint32_t base_;
};

// Fills the list of groups and experts' first rows, by all threads; returns the groups' number.
template <typename Limits, int kColumns>
__device__ int make_groups(const Plan<Limits>& plan, const Shared<kColumns>& shared) {
  TokenGroup* const groups = shared.groups();
  const PlanSizes all = plan.for_experts([&](int expert, int count, PlanSizes before) {
    shared.first_rows()[expert] = static_cast<uint16_t>(before.rows);
    TokenGroup* group = groups + before.groups;
    for (int i = 0; i < count; i += kColumns) {
      *group++ = {static_cast<uint16_t>(expert),
                  static_cast<uint16_t>(before.rows + i),
                  static_cast<uint16_t>(min(kColumns, count - i))};
    }
  });
  return all.groups;
}

// visit(item) for those of the block, by warps of which `arrives` threads of the block in all say
// that they are done with one.
template <int kColumns, typename Visit>
__device__ void for_items(const Shared<kColumns>& shared, bool arrives, Visit&& visit) {
  for (StageCursor slot;; slot.advance(kNumItems)) {
    wait_for(shared.item_full(slot.index), slot.parity);
    const Item& item = shared.item(slot.index);
    if (item.matrix == kNoMatrix) return;
    visit(item);
    if (arrives) arrive(shared.item_empty(slot.index));
  }
}

// By one thread.
template <int kColumns>
__device__ void copy_matrices(const MoeSkinnyArgs& args, const Shared<kColumns>& shared) {
  const uint64_t policy = read_once_policy();
  StageCursor stage;
  for_items(shared, true, [&](const Item& item) {
    const MatrixArgs& matrix = args.matrices[item.matrix];
    const int row =
        shared.groups()[item.group].expert * matrix.num_rows + item.tile * matrix.tile_stride;
    for (int panel = 0; panel < matrix.num_panels; ++panel) {
      const uint32_t full = shared.full(stage.index), target = shared.matrix(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, 2 * kHalfSize);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        copy_box(target + half * kHalfSize,
                 &matrix.matrices,
                 panel * kPanelSize,
                 row + half * matrix.half_stride,
                 full,
                 policy);
      }
      stage.advance(Shared<kColumns>::kNumStages);
    }
  });
}

// Returns when other blocks have counted so far.
__device__ inline void wait_for_count(const MoeSkinnyArgs& args, int counter, int count) {
  const int32_t* const address = args.scratch.counters + counter;
  int32_t now = 0;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(address) : "memory");
  } while (now < count);
}

// The same before copies of what their threads stored.
__device__ inline void wait_before_copies(const MoeSkinnyArgs& args, int counter, int count) {
  wait_for_count(args, counter, count);
  asm volatile("fence.proxy.async;" ::: "memory");
}

// By another thread.
template <int kColumns>
__device__ void copy_x(const MoeSkinnyArgs& args, const Shared<kColumns>& shared) {
  const uint64_t policy = keep_policy();
  StageCursor stage;
  wait_before_copies(args, kRowsReady, args.call.num_tokens);
  for_items(shared, true, [&](const Item& item) {
    const MatrixArgs& matrix = args.matrices[item.matrix];
    const int row = shared.groups()[item.group].first_row;
    if (item.matrix == 1) {
      wait_before_copies(args, kTilesReady + item.group, args.matrices[0].num_tiles);
    }
    for (int panel = 0; panel < matrix.num_panels; ++panel) {
      const uint32_t full = shared.full(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, Shared<kColumns>::kXSize + Shared<kColumns>::kScalesSize);
      copy_box(shared.x(stage.index), &matrix.x, panel * kPanelSize, row, full, policy);
      copy_bulk(shared.scales(stage.index),
                matrix.x_scales + int64_t{panel} * args.scratch.num_rows + row,
                Shared<kColumns>::kScalesSize,
                full,
                policy);
      stage.advance(Shared<kColumns>::kNumStages);
    }
  });
}

}  // namespace atom::ops::device::moe_skinny
