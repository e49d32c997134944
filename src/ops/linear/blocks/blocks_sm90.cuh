// Inside the linear in FP8 with scales of groups on Hopper: the kernel. Of a block's three
// warpgroups the last copies x and the weight to a ring of stages, by a thread each, and their
// scales, by two warps; the others
// multiply the halves of a tile's rows: while one scales and adds what a group's products gave, the
// matrix units work for the other.
#pragma once

#include "ops/linear/blocks/finish.cuh"

namespace atom::ops::device::blocks {

template <typename S>
class Multiplier {
 public:
  __device__ Multiplier(const BlocksArgs& args, const Shared<S>& shared)
      : args_(args),
        shared_(shared),
        finisher_(args, shared),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize) {
    if (warp_ / 4 == 1) give_turn(0);
  }

  __device__ __forceinline__ void run(int row_tile, int column_tile) {
    const int first_row = row_tile * S::kRows + warp_ / 4 * kWarpgroupRows;
    if (first_row >= args_.params.num_rows) return skip();
    multiply();
#pragma unroll
    for (int m = 0; m < S::kMatrices; ++m) {
      const int row = first_row + m * kMatrixRows + warp_ % 4 * kWarpRows;
      if (row < args_.params.num_rows) finisher_.store(sums_[m], row, column_tile);
    }
  }

  __device__ void finish() const {
    if (lane_ == 0) finisher_.wait();
  }

 private:
  static constexpr int kFirstTurn = 2;  // the first warpgroup's barrier
  static constexpr int kWarpgroupRows = S::kMatrices * kMatrixRows;
  static constexpr int kSums = S::kColumns / 2;  // of a thread, in one matrix
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  // For one group and matrix: those of a thread's two rows, times those of the column halves.
  struct Scales {
    float upper[2], lower[2];
  };

  __device__ Scales load_scales(int matrix) const {
    const float* const scales = shared_.scales(stage_.index);
    const int row = warp_ / 4 * kWarpgroupRows + matrix * kMatrixRows + warp_ % 4 * kWarpRows;
    const float upper = scales[row + lane_ / 4], lower = scales[row + lane_ / 4 + 8];
    const float first = scales[S::kRows], second = scales[S::kRows + 1];
    return {{upper * first, upper * second}, {lower * first, lower * second}};
  }

  __device__ __forceinline__ void multiply() {
#pragma unroll
    for (int m = 0; m < S::kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[m][i] = 0;
    }
#pragma unroll 1
    for (int group = 0; group < args_.num_groups; ++group) {
      const uint64_t a =
          matrix_at(shared_.x(stage_.index) + warp_ / 4 * kWarpgroupRows * kPanelSize);
      const uint64_t b = matrix_at(shared_.weight(stage_.index));
      wait_for(shared_.full(stage_.index), stage_.parity);
#pragma unroll
      for (int m = 0; m < S::kMatrices; ++m) {
        float products[kSums];
        begin_group(products, a + matrix_offset(m * kMatrixRows * kPanelSize), b);
        const Scales scales = load_scales(m);
        wait_for_products<0>();
        pin(products);
        if (m == S::kMatrices - 1) release();
        add_scaled(m, products, scales);
      }
      stage_.advance(S::kNumStages);
    }
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
      const int half = i < kSums / 2 ? 0 : 1;
      const float scale = i / 2 % 2 == 0 ? scales.upper[half] : scales.lower[half];
      sums_[m][i] = fmaf(products[i], scale, sums_[m][i]);
    }
  }

  // A tile none of whose rows here exist.
  __device__ void skip() {
    for (int group = 0; group < args_.num_groups; ++group) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      for (int m = 0; m < S::kMatrices; ++m) {
        wait_for_turn();
        pass_turn();
      }
      release();
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

  // The current stage, to all blocks that copy to it.
  __device__ void release() const {
    const uint32_t empty = shared_.empty(stage_.index);
    if constexpr (S::kClusterSize > 1) {
      if (lane_ < S::kClusterSize) arrive_in_cluster(address_in(lane_, empty));
    } else {
      if (lane_ == 0) arrive(empty);
    }
  }

  const BlocksArgs& args_;
  const Shared<S>& shared_;
  const Finisher<S> finisher_;
  const int warp_, lane_;
  StageCursor stage_;
  float sums_[S::kMatrices][kSums];
};

template <typename S>
__device__ void init_barriers(const Shared<S>& shared) {
  for (int i = 0; i < S::kNumStages; ++i) {
    init_barrier(shared.full(i), 1 + kScaleWarps);
    init_barrier(shared.empty(i), S::kClusterSize * kConsumerWarps);
  }
  publish_barriers();
}

// All threads of the cluster call it.
template <typename S>
__device__ void synchronize_cluster() {
  if constexpr (S::kClusterSize > 1) {
    arrive_at_cluster();
    wait_for_cluster_start();
  } else {
    __syncthreads();
  }
}

template <typename S>
__global__ void __launch_bounds__(kNumThreads, 1)
    blocks_linear(const __grid_constant__ BlocksArgs args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<S> shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.weight);
    prefetch_map(&args.y);
    init_barriers(shared);
  }
  allow_next_grid();
  __syncwarp();
  synchronize_cluster<S>();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    const int warp = threadIdx.x / kWarpSize - kConsumerWarps;
    if (warp == 0 && is_elected()) copy_weight<S>(args, shared);
    if (warp == 1 && is_elected()) copy_x<S>(args, shared);
    if (warp >= 2) ScaleCopier<S>(args, shared).run();
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    wait_for_previous_grid();
    Multiplier<S> multiplier(args, shared);
    for_tiles<S>(args,
                 [&](int row_tile, int column_tile) { multiplier.run(row_tile, column_tile); });
    multiplier.finish();
  }
  // Until then the other block writes here.
  synchronize_cluster<S>();
}

// The launch of one tile's size, in a file of its own.
template <typename S>
gpuError_t launch_blocks(const BlocksArgs& args, gpuStream_t stream) {
  auto* kernel = &blocks_linear<S>;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedSize);
  if (error != cudaSuccess) return error;
  if constexpr (S::kClusterSize > 1) {
    return launch_clusters(kernel,
                           args.num_clusters * S::kClusterSize,
                           S::kClusterSize,
                           kNumThreads,
                           S::kSharedSize,
                           stream,
                           args.params.overlaps_previous,
                           args);
  } else {
    return launch(kernel,
                  dim3(args.num_clusters),
                  dim3(kNumThreads),
                  S::kSharedSize,
                  stream,
                  args.params.overlaps_previous,
                  args);
  }
}

}  // namespace atom::ops::device::blocks
