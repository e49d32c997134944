// Inside the linear in FP8 with scales of groups on Hopper: a warpgroup's products and sums of a
// tile.
#pragma once

#include "ops/linear/blocks/finish.cuh"
#include "ops/linear/blocks/join.cuh"

namespace atom::ops::device::blocks {

template <typename S>
class Multiplier {
 public:
  __device__ Multiplier(const BlocksArgs& args, const Shared<S>& shared)
      : args_(args),
        shared_(shared),
        finisher_(args, shared),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize),
        first_sharer_(Seat<S>().rank_of(0, 0)) {
    if (warp_ / 4 == 1) give_turn(0);
  }

  __device__ __forceinline__ void run(int row_tile, int column_tile) {
    const int first = warp_ / 4 * kWarpgroupRows;
    if (first >= args_.tile_rows || row_tile * args_.tile_rows + first >= args_.params.num_rows) {
      return skip();
    }
    multiply();
    if constexpr (S::kParts == 1) store(row_tile, column_tile);
  }

  // The sums to the block that finishes them.
  __device__ void bring(int row_tile) const {
    if (has_rows(row_tile, 0)) bring_sums<S>(shared_, warp_, lane_, sums_[0]);
  }

  // And then those of all parts to y.
  __device__ void join(int row_tile, int column_tile) {
    if (!has_rows(row_tile, 0) || !finishes<S>(warp_)) return;
    join_sums<S>(shared_, warp_, lane_, sums_[0]);
    store(row_tile, column_tile);
  }

  __device__ void finish() const {
    if (lane_ == 0) finisher_.wait();
  }

 private:
  static constexpr int kFirstTurn = 2;  // the first warpgroup's barrier
  static constexpr int kWarpgroupRows = S::kMatrices * kMatrixRows;
  static constexpr int kSums = S::kColumns / 2;  // of a thread, in one matrix
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  // For one group and matrix: those of a thread's two rows, times those of the units of columns.
  struct Scales {
    float upper[S::kUnits], lower[S::kUnits];
  };

  // The first of the warp's rows of a matrix, in the tile.
  __device__ int row_of(int matrix) const {
    return warp_ / 4 * kWarpgroupRows + matrix * kMatrixRows + warp_ % 4 * kWarpRows;
  }
  __device__ bool has_rows(int row_tile, int matrix) const {
    const int row = row_of(matrix);
    return row < args_.tile_rows && row_tile * args_.tile_rows + row < args_.params.num_rows;
  }

  __device__ __forceinline__ void store(int row_tile, int column_tile) const {
#pragma unroll
    for (int m = 0; m < S::kMatrices; ++m) {
      if (!has_rows(row_tile, m)) continue;
      finisher_.store(sums_[m], row_tile * args_.tile_rows + row_of(m), column_tile);
    }
  }

  __device__ Scales load_scales(int stage, int matrix) const {
    const float* const scales = shared_.scales(stage);
    const int row = row_of(matrix);
    const float upper = scales[row + lane_ / 4], lower = scales[row + lane_ / 4 + 8];
    Scales result;
#pragma unroll
    for (int unit = 0; unit < S::kUnits; ++unit) {
      result.upper[unit] = upper * scales[S::kRows + unit];
      result.lower[unit] = lower * scales[S::kRows + unit];
    }
    return result;
  }

  __device__ __forceinline__ void multiply() {
#pragma unroll
    for (int m = 0; m < S::kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[m][i] = 0;
    }
    const Groups groups = groups_of<S>(args_);
    if constexpr (S::kGoesAhead) {
      multiply_ahead(groups.end - groups.begin);
    } else {
#pragma unroll 1
      for (int group = groups.begin; group < groups.end; ++group) multiply_group();
    }
  }

  __device__ __forceinline__ void multiply_group() {
    const Operands operands = operands_of_stage();
    wait_for(shared_.full(stage_.index), stage_.parity);
#pragma unroll
    for (int m = 0; m < S::kMatrices; ++m) {
      float products[kSums];
      begin_group(products, operands.a + matrix_offset(m * kMatrixRows * kPanelSize), operands.b);
      const Scales scales = load_scales(stage_.index, m);
      wait_for_products<0>();
      pin(products);
      if (m == S::kMatrices - 1) release(stage_.index);
      add_scaled(m, products, scales);
    }
    stage_.advance(S::kNumStages);
  }

  // The matrix units have the next group's products to do while one's are scaled and added.
  __device__ __forceinline__ void multiply_ahead(int num_groups) {
    float even[kSums], odd[kSums];
    begin_next(even);
    int group = 1;
#pragma unroll 1
    for (; group + 1 < num_groups; group += 2) {
      const int before = last_, between = begin_next(odd);
      add_last<1>(even, before);
      begin_next(even);
      add_last<1>(odd, between);
    }
    if (group < num_groups) {
      const int before = last_;
      begin_next(odd);
      add_last<1>(even, before);
      add_last<0>(odd, last_);
    } else {
      add_last<0>(even, last_);
    }
  }

  // Returns the group's stage.
  __device__ __forceinline__ int begin_next(float (&products)[kSums]) {
    const Operands operands = operands_of_stage();
    wait_for(shared_.full(stage_.index), stage_.parity);
    begin_group(products, operands.a, operands.b);
    last_ = stage_.index;
    stage_.advance(S::kNumStages);
    return last_;
  }

  // Adds what a stage's group gives, while the products of kPending groups go on.
  template <int kPending>
  __device__ __forceinline__ void add_last(float (&products)[kSums], int stage) {
    const Scales scales = load_scales(stage, 0);
    wait_for_products<kPending>();
    pin(products);
    release(stage);
    add_scaled(0, products, scales);
  }

  // Of the current stage and the warpgroup's first matrix.
  struct Operands {
    uint64_t a, b;
  };
  __device__ __forceinline__ Operands operands_of_stage() const {
    const int first_row = warp_ / 4 * kWarpgroupRows;
    return {matrix_at(shared_.x(stage_.index) + first_row * kPanelSize),
            matrix_at(shared_.weight(stage_.index))};
  }

  __device__ __forceinline__ void begin_group(float (&products)[kSums],
                                              uint64_t a,
                                              uint64_t b) const {
    wait_for_turn();
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      multiply_float8<S::kColumns>(products, a + offset, b + offset, i > 0);
    }
    commit_products();
    pass_turn();
  }

  __device__ __forceinline__ void add_scaled(int m,
                                             const float (&products)[kSums],
                                             const Scales& scales) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int unit = i / (S::kUnit / 2);
      const float scale = i / 2 % 2 == 0 ? scales.upper[unit] : scales.lower[unit];
      sums_[m][i] = fmaf(products[i], scale, sums_[m][i]);
    }
  }

  // A tile none of whose rows here exist.
  __device__ void skip() {
    const Groups groups = groups_of<S>(args_);
    for (int group = groups.begin; group < groups.end; ++group) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      for (int m = 0; m < S::kMatrices; ++m) {
        wait_for_turn();
        pass_turn();
      }
      release(stage_.index);
      stage_.advance(S::kNumStages);
    }
  }

  // Products of one warpgroup begin after those of the other one: so that one scales while the
  // matrix units work for the other, and not both at a time.
  __device__ void wait_for_turn() const {
    if constexpr (S::kTakesTurns) {
      asm volatile("bar.sync %0, %1;" ::"r"(kFirstTurn + warp_ / 4), "n"(kNumConsumers) : "memory");
    }
  }
  __device__ void pass_turn() const {
    give_turn(1 - warp_ / 4);
  }
  static __device__ void give_turn(int warpgroup) {
    if constexpr (S::kTakesTurns) {
      asm volatile("bar.arrive %0, %1;" ::"r"(kFirstTurn + warpgroup), "n"(kNumConsumers)
                   : "memory");
    }
  }

  // To all blocks that copy to the stage.
  __device__ void release(int stage) const {
    const uint32_t empty = shared_.empty(stage);
    if constexpr (S::kSharers > 1) {
      if (lane_ < S::kSharers) arrive_in_cluster(address_in(first_sharer_ + lane_, empty));
    } else {
      if (lane_ == 0) arrive(empty);
    }
  }

  const BlocksArgs& args_;
  const Shared<S>& shared_;
  const Finisher<S> finisher_;
  const int warp_, lane_;
  const int first_sharer_;  // rank of the first block that copies to this one
  StageCursor stage_;
  int last_ = 0;  // stage whose products were begun last
  float sums_[S::kMatrices][kSums];
};

}  // namespace atom::ops::device::blocks
