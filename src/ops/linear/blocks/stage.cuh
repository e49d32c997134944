// Inside the linear in FP8 with scales of groups on Hopper: the threads that copy x and the weight
// to the stages, and their scales.
#pragma once

#include "ops/device/copy_ahead.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/linear/blocks/shape.cuh"

namespace atom::ops::device::blocks {

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

  // Where those of a thread's rows begin, and of the weight, of a tile.
  struct Sources {
    const float *x[kRows], *weight;
  };

  // Others' for rows that do not exist.
  __device__ Sources sources_of(int row_tile, int column_tile) const {
    const LinearGpuCall& p = args_.params;
    const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
    const int first_row = row_tile * args_.tile_rows + thread_;
    const int feature = column_tile * (gated ? S::kHalfColumns : S::kColumns) +
                        thread_ % S::kUnits * (gated ? args_.weight_stride : S::kUnit);
    Sources sources;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = min(first_row + i * kScaleThreads, p.num_rows - 1);
      sources.x[i] = p.x_scale + row * args_.num_groups;
    }
    sources.weight =
        p.weight_scale + min(feature, p.out_features - 1) / p.scale_rows * args_.num_groups;
    return sources;
  }

  __device__ void copy(int row_tile, int column_tile) {
    const Sources sources = sources_of(row_tile, column_tile);
    args_.is_ahead ? copy_ahead(sources) : copy_in_turn(sources);
  }

  // As many groups at a time as there are stages: one after the other, each takes the latency of
  // the second-level cache.
  __device__ void copy_ahead(const Sources& sources) {
    const Groups groups = groups_of<S>(args_);
    for (int group = groups.begin; group < groups.end; ++group) {
      const uint32_t target = shared_address(shared_.scales(stage_.index) + thread_);
      wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        copy_4(target + i * kScaleThreads * int{sizeof(float)}, sources.x[i] + group);
      }
      if (thread_ < S::kUnits) {
        copy_4(target + S::kRows * int{sizeof(float)}, sources.weight + group);
      }
      arrive_after_copies(shared_.full(stage_.index));
      stage_.advance(S::kNumStages);
    }
  }

  __device__ void copy_in_turn(const Sources& sources) {
    const auto load = [&](int group) {
      Scales scales;
#pragma unroll
      for (int i = 0; i < kRows; ++i) scales.x[i] = __ldcg(sources.x[i] + group);
      scales.weight = __ldg(sources.weight + group);
      return scales;
    };
    const Groups groups = groups_of<S>(args_);
    Scales next = load(groups.begin);
    for (int group = groups.begin; group < groups.end; ++group) {
      const Scales scales = next;
      next = load(min(group + 1, groups.end - 1));
      wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
      float* const target = shared_.scales(stage_.index);
#pragma unroll
      for (int i = 0; i < kRows; ++i) target[thread_ + i * kScaleThreads] = scales.x[i];
      if (thread_ < S::kUnits) target[S::kRows + thread_] = scales.weight;
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

// One thread copies the rows of x, or a half of them for both blocks of a row of the cluster.
template <typename S>
__device__ void copy_x(const BlocksArgs& args, const Shared<S>& shared) {
  const uint64_t policy = keep_policy();
  const Groups groups = groups_of<S>(args);
  const Seat<S> seat;
  StageCursor stage;
  wait_for_previous_grid();
  for_tiles<S>(args, [&](int row_tile, int) {
    for (int group = groups.begin; group < groups.end; ++group) {
      const uint32_t target = shared.x(stage.index), full = shared.full(stage.index);
      const int column = group * kPanelSize, row = row_tile * args.tile_rows;
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, args.tile_rows * kPanelSize + S::kWeightSize);
      if constexpr (S::kClusterColumns > 1) {
        const int half_row = seat.column * args.tile_rows / 2;
        copy_box_to_all(target + half_row * kPanelSize,
                        &args.x,
                        column,
                        row + half_row,
                        full,
                        1 << seat.rank_of(seat.row, 0) | 1 << seat.rank_of(seat.row, 1),
                        policy);
      } else {
        copy_box(target, &args.x, column, row, full, policy);
      }
      stage.advance(S::kNumStages);
    }
  });
}

// What the ring does not hold of a tile's weight, to the second-level cache: until x is there the
// ring stands still.
template <typename S>
__device__ void bring_weight(const BlocksArgs& args, int row, int begin, int end) {
  const Seat<S> seat;
  for (int group = begin; group < end; ++group) {
    const int column = group * kPanelSize;
    if constexpr (S::kClusterRows > 1) {
      prefetch_box(&args.weight, column, row + seat.row * args.weight_stride);
    } else {
      prefetch_box(&args.weight, column, row);
      prefetch_box(&args.weight, column, row + args.weight_stride);
    }
  }
}

// Another copies the weight's rows of a tile, or a half of them for both blocks of a column of the
// cluster.
template <typename S>
__device__ void copy_weight(const BlocksArgs& args, const Shared<S>& shared) {
  const bool gated = args.params.epilogue == LinearEpilogue::kSiluAndMul;
  const int step = gated ? S::kHalfColumns : S::kColumns;
  const uint64_t policy = keep_policy();
  const Groups groups = groups_of<S>(args);
  const Seat<S> seat;
  StageCursor stage;
  const int num_ahead = args.is_ahead ? S::kNumStages : groups.end - groups.begin;
  for_tiles<S>(args, [&](int, int column_tile) {
    for (int group = groups.begin; group < groups.end; ++group) {
      const uint32_t target = shared.weight(stage.index), full = shared.full(stage.index);
      const int column = group * kPanelSize, row = column_tile * step;
      if (group == groups.begin + num_ahead) bring_weight<S>(args, row, group, groups.end);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      if constexpr (S::kClusterRows > 1) {
        copy_box_to_all(target + seat.row * S::kHalfSize,
                        &args.weight,
                        column,
                        row + seat.row * args.weight_stride,
                        full,
                        1 << seat.rank_of(0, seat.column) | 1 << seat.rank_of(1, seat.column),
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
