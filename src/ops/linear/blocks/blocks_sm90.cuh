// Inside the linear in FP8 with scales of groups on Hopper: the kernel. Of a block's three
// warpgroups the first copies x and the weight to a ring of stages, by a thread each; the others
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
        lane_(threadIdx.x % kWarpSize) {}

  __device__ __forceinline__ void run(int row_tile, int column_tile) {
    constexpr int kWarpgroupRows = S::kMatrices * kMatrixRows;
    const int local_row = warp_ / 4 * kWarpgroupRows;
    const int first_row = row_tile * S::kRows + local_row;
    if (first_row >= args_.params.num_rows) return skip();
    find_scales(first_row + warp_ % 4 * kWarpRows, column_tile);
    multiply(local_row);
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
  static constexpr int kSums = S::kColumns / 2;  // of a thread, in one matrix
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  // Of one group: of a thread's two rows of each matrix, and of the halves of the tile's columns.
  struct Scales {
    float x[S::kMatrices][2];
    float weight[2];
  };

  // Where they begin; of rows that do not exist those of others. `row`: the warp's first.
  __device__ void find_scales(int row, int column_tile) {
    const LinearGpuCall& p = args_.params;
#pragma unroll
    for (int m = 0; m < S::kMatrices; ++m) {
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int own = row + m * kMatrixRows + lower * 8 + lane_ / 4;
        x_scales_[m][lower] = min(own, p.num_rows - 1) * args_.num_groups;
      }
    }
    const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int feature = column_tile * (gated ? S::kHalfColumns : S::kColumns) +
                          half * args_.weight_stride;
      weight_scales_[half] = min(feature, p.out_features - 1) / p.scale_rows * args_.num_groups;
    }
  }

  __device__ Scales load_scales(int group) const {
    const LinearGpuCall& p = args_.params;
    Scales scales;
#pragma unroll
    for (int m = 0; m < S::kMatrices; ++m) {
      scales.x[m][0] = __ldcg(p.x_scale + x_scales_[m][0] + group);
      scales.x[m][1] = __ldcg(p.x_scale + x_scales_[m][1] + group);
    }
    scales.weight[0] = __ldg(p.weight_scale + weight_scales_[0] + group);
    scales.weight[1] = __ldg(p.weight_scale + weight_scales_[1] + group);
    return scales;
  }

  // The warpgroup's rows of a tile, from `local_row` of it on.
  __device__ __forceinline__ void multiply(int local_row) {
#pragma unroll
    for (int m = 0; m < S::kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[m][i] = 0;
    }
    Scales next = load_scales(0);
#pragma unroll 1
    for (int group = 0; group < args_.num_groups; ++group) {
      const Scales scales = next;
      next = load_scales(min(group + 1, args_.num_groups - 1));
      const uint64_t a = matrix_at(shared_.x(stage_.index) + local_row * kPanelSize);
      const uint64_t b = matrix_at(shared_.weight(stage_.index));
      wait_for(shared_.full(stage_.index), stage_.parity);
#pragma unroll
      for (int m = 0; m < S::kMatrices; ++m) {
        float products[kSums];
        multiply_group(products, a + matrix_offset(m * kMatrixRows * kPanelSize), b);
        if (m == S::kMatrices - 1) release();
        add_scaled(m, products, scales);
      }
      stage_.advance(S::kNumStages);
    }
  }

  static __device__ __forceinline__ void multiply_group(float (&products)[kSums], uint64_t a, uint64_t b) {
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      multiply_float8<S::kColumns>(products, a + offset, b + offset, i > 0);
    }
    commit_products();
    wait_for_products<0>();
    pin(products);
  }

  __device__ __forceinline__ void add_scaled(int m, const float (&products)[kSums], const Scales& scales) {
const float first[2] = {scales.x[m][0] * scales.weight[0], scales.x[m][1] * scales.weight[0]};
    const float second[2] = {scales.x[m][0] * scales.weight[1], scales.x[m][1] * scales.weight[1]};
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int lower = i / 2 % 2;
      const float scale = i < kSums / 2 ? first[lower] : second[lower];
      sums_[m][i] = fmaf(products[i], scale, sums_[m][i]);
    }
  }

  // A tile none of whose rows here exist.
  __device__ void skip() {
    for (int group = 0; group < args_.num_groups; ++group) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      release();
      stage_.advance(S::kNumStages);
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
  int x_scales_[S::kMatrices][2], weight_scales_[2];
  float sums_[S::kMatrices][kSums];
};

template <typename S>
__device__ void init_barriers(const Shared<S>& shared) {
  for (int i = 0; i < S::kNumStages; ++i) {
    init_barrier(shared.full(i), 1);
    init_barrier(shared.empty(i), S::kClusterSize * kConsumerWarps);
  }
  publish_barriers();
}

// Of all threads of the cluster.
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
  constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
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

// Of one tile, in a file of its own.
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
