// Inside the linear in FP8 with scales of groups on Hopper: its shared memory, the order of tiles,
// and the threads that copy x and the weight to the stages.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/blocks/launch.h"
#include "ops/linear/blocks/product.cuh"

namespace atom::ops::device::blocks {

constexpr int kPanelSize = 128;  // bytes of k, which are a group
constexpr int kWarpgroupSize = 128, kMatrixRows = 64;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kWarpRows = 16;                     // of a matrix
constexpr int kBoxColumns = 64;                   // of y that leave at once, 128 bytes
constexpr int kBoxSize = kWarpRows * kPanelSize;  // of a warp's rows of y
constexpr int kMaxSharedSize = 227 << 10;
constexpr int kBarrierSize = 8;
constexpr int kScaleWarps = 2, kScaleThreads = kScaleWarps * kWarpSize;  // that copy scales

// kMatrices: of 64 rows of x that a warpgroup multiplies. kClusterSize: row tiles that share the
// copies of the weight. kTakesTurns: the warpgroups at the matrix units.
template <int kMatricesOf, int kColumnsOf, int kClusterSizeOf, bool kTakesTurnsOf>
struct Shape {
  static constexpr bool kTakesTurns = kTakesTurnsOf;
  static constexpr int kMatrices = kMatricesOf, kColumns = kColumnsOf;
  static constexpr int kClusterSize = kClusterSizeOf;
  static constexpr int kRows = 2 * kMatrices * kMatrixRows;
  static constexpr int kXSize = kRows * kPanelSize;
  static constexpr int kHalfColumns = kColumns / 2, kHalfSize = kHalfColumns * kPanelSize;
  static constexpr int kStageSize = kXSize + 2 * kHalfSize;
  static constexpr int kScalesSize = (kRows + 4) * int{sizeof(float)};  // of the halves of columns
  static constexpr int kOutSize = kConsumerWarps * kBoxSize;
  static constexpr int kNumStages =
      (kMaxSharedSize - kOutSize) / (kStageSize + kScalesSize + 2 * kBarrierSize);
  static constexpr int kOutOffset = kNumStages * kStageSize;
  static constexpr int kScalesOffset = kOutOffset + kOutSize;
  static constexpr int kBarriersOffset = kScalesOffset + kNumStages * kScalesSize;
  static constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;
  static_assert(kNumStages >= 2 && kSharedSize <= kMaxSharedSize);
};

// Where things are in shared memory.
template <typename S>
class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : memory_(memory), base_(shared_address(memory)) {}

  __device__ uint32_t x(int stage) const { return base_ + stage * S::kStageSize; }
  __device__ uint32_t weight(int stage) const { return x(stage) + S::kXSize; }
  // A warp's rows of y.
  __device__ uint32_t rows(int warp) const { return base_ + S::kOutOffset + warp * kBoxSize; }
  // The scales of a stage's group: of the rows of x, then of the halves of the columns.
  __device__ float* scales(int stage) const {
    return reinterpret_cast<float*>(memory_ + S::kScalesOffset + stage * S::kScalesSize);
  }
  __device__ uint32_t full(int stage) const {
    return base_ + S::kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(S::kNumStages + stage); }

 private:
  uint8_t* const memory_;
  const uint32_t base_;
};

// visit(row tile, column tile) for all tiles of the block.
template <typename S, typename Visit>
__device__ void for_tiles(const BlocksArgs& args, Visit&& visit) {
  const int rank = S::kClusterSize > 1 ? cluster_rank() : 0;
  const int num_steps = args.num_row_steps * args.num_column_steps;
  const int group_size = args.group_rows * args.num_column_steps;
  for (int i = blockIdx.x / S::kClusterSize; i < num_steps; i += args.num_clusters) {
    const int first_row = i / group_size * args.group_rows;
    const int num_rows = min(args.group_rows, args.num_row_steps - first_row);
    const int local = i % group_size;
    visit((first_row + local % num_rows) * S::kClusterSize + rank, local / num_rows);
  }
}

// Two warps copy the scales of a tile's groups.
template <typename S>
class ScaleCopier {
 public:
  __device__ ScaleCopier(const BlocksArgs& args, const Shared<S>& shared)
      : args_(args), shared_(shared), thread_(threadIdx.x % kScaleThreads) {}

  __device__ void run() {
    wait_for_previous_grid();
    for_tiles<S>(args_, [&](int row_tile, int column_tile) { copy(row_tile, column_tile); });
  }

 private:
  static constexpr int kRows = S::kRows / kScaleThreads;  // of a thread

  // What is loaded while the stage before is waited for.
  struct Scales {
    float x[kRows], weight;
  };

  // Copies other rows' scales for rows that do not exist.
  __device__ void copy(int row_tile, int column_tile) {
    const LinearGpuCall& p = args_.params;
    const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
    const int first_row = row_tile * S::kRows + thread_;
    const int feature =
        column_tile * (gated ? S::kHalfColumns : S::kColumns) + thread_ % 2 * args_.weight_stride;
    const float* weight =
        p.weight_scale + min(feature, p.out_features - 1) / p.scale_rows * args_.num_groups;
    const auto load = [&](int group) {
      Scales scales;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = min(first_row + i * kScaleThreads, p.num_rows - 1);
        scales.x[i] = __ldcg(p.x_scale + row * args_.num_groups + group);
      }
      scales.weight = __ldg(weight + group);
      return scales;
    };
    Scales next = load(0);
    for (int group = 0; group < args_.num_groups; ++group) {
      const Scales scales = next;
      next = load(min(group + 1, args_.num_groups - 1));
      wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
      float* const target = shared_.scales(stage_.index);
#pragma unroll
      for (int i = 0; i < kRows; ++i) target[thread_ + i * kScaleThreads] = scales.x[i];
      if (thread_ < 2) target[S::kRows + thread_] = scales.weight;
      __syncwarp();
      if (thread_ % kWarpSize == 0) arrive(shared_.full(stage_.index));
      stage_.advance(S::kNumStages);
    }
  }

  const BlocksArgs& args_;
  const Shared<S>& shared_;
  const int thread_;
  StageCursor stage_;
};

// One thread copies the rows of x.
template <typename S>
__device__ void copy_x(const BlocksArgs& args, const Shared<S>& shared) {
  const uint64_t policy = keep_policy();
  StageCursor stage;
  wait_for_previous_grid();
  for_tiles<S>(args, [&](int row_tile, int) {
    for (int group = 0; group < args.num_groups; ++group) {
      const uint32_t full = shared.full(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, S::kStageSize);
      copy_box(
          shared.x(stage.index), &args.x, group * kPanelSize, row_tile * S::kRows, full, policy);
      stage.advance(S::kNumStages);
    }
  });
}

// Another copies the weight's part of a tile, or a half of it for both blocks of a cluster.
template <typename S>
__device__ void copy_weight(const BlocksArgs& args, const Shared<S>& shared) {
  constexpr uint16_t kBothBlocks = 3;
  const bool gated = args.params.epilogue == LinearEpilogue::kSiluAndMul;
  const int step = gated ? S::kHalfColumns : S::kColumns;
  const uint64_t policy = keep_policy();
  StageCursor stage;
  for_tiles<S>(args, [&](int, int column_tile) {
    for (int group = 0; group < args.num_groups; ++group) {
      const uint32_t target = shared.weight(stage.index), full = shared.full(stage.index);
      const int column = group * kPanelSize, row = column_tile * step;
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      if constexpr (S::kClusterSize > 1) {
        const int rank = cluster_rank();
        copy_box_to_all(target + rank * S::kHalfSize,
                        &args.weight,
                        column,
                        row + rank * args.weight_stride,
                        full,
                        kBothBlocks,
                        policy);
      } else {
        copy_box(target, &args.weight, column, row, full, policy);
        copy_box(
            target + S::kHalfSize, &args.weight, column, row + args.weight_stride, full, policy);
      }
      stage.advance(S::kNumStages);
    }
  });
}

}  // namespace atom::ops::device::blocks
