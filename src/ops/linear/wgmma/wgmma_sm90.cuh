// Inside the linear for many rows on Hopper: the kernel. Of a block's three warpgroups the first
// copies x and the weight to a ring of stages, by a thread each; the others multiply the halves of
// a tile's rows, and store a tile while the next one's first products are under way.
#pragma once

#include "ops/linear/wgmma/finish.cuh"

namespace atom::ops::device::wgmma {

template <typename T>
class Multiplier {
 public:
  __device__ Multiplier(const WgmmaArgs& args, const Shared& shared)
      : args_(args),
        shared_(shared),
        finisher_(args, shared),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize),
        x_offset_(warp_ / 4 * kWarpgroupRows * kPanelSize),
        target_(address_in(lane_ % kWgmmaClusterSize, shared.empty(0))) {}

  __device__ void run(int row_tile, int column_tile) {
    const int first_row = row_tile * kWgmmaTileRows + warp_ / 4 * kWarpgroupRows;
    const bool exists = first_row < args_.params.num_rows;
    if (!exists || args_.num_chunks < kSlices) finish();
    if (!exists) return skip();
    multiply();
    finisher_.take(sums_, first_row + warp_ % 4 * 16, column_tile);
  }

  __device__ void finish() { finisher_.finish_all(); }

 private:
  static constexpr int kSlices = Finisher<T>::kSlices;
  static constexpr int kSums = kWgmmaTileColumns / 2;  // of a thread
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  __device__ void multiply() {
    int chunk = 0;
    if (args_.num_chunks >= kSlices) {
      multiply_slices(std::make_integer_sequence<int, kSlices>());
      chunk = kSlices;
    }
    for (; chunk < args_.num_chunks; ++chunk) multiply_chunk(chunk > 0);
    wait_for_products<0>();
    pin(sums_);
    release(previous_);
  }

  template <int... kEach>
  __device__ void multiply_slices(std::integer_sequence<int, kEach...>) {
    (multiply_and_finish<kEach>(), ...);
  }

  // A chunk, and meanwhile a part of the tile before.
  template <int kSlice>
  __device__ void multiply_and_finish() {
    multiply_chunk(kSlice > 0);
    finisher_.template finish_slice<kSlice>();
  }

  __device__ void multiply_chunk(bool keeps) {
    const uint64_t a = matrix_at(shared_.x(stage_.index) + x_offset_);
    const uint64_t b = matrix_at(shared_.weight(stage_.index));
    wait_for(shared_.full(stage_.index), stage_.parity);
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      multiply_by_256<T>(sums_, a + offset, b + offset, keeps || i > 0);
    }
    commit_products();
    if (keeps) {
      wait_for_products<1>();
      release(previous_);
    }
    previous_ = stage_.index;
    stage_.advance(kNumStages);
  }

  // A tile none of whose rows here exist.
  __device__ void skip() {
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      release(stage_.index);
      stage_.advance(kNumStages);
    }
  }

  // To both blocks, which copy to this stage.
  __device__ void release(int stage) const {
    if (lane_ < kWgmmaClusterSize) arrive_in_cluster(target_ + stage * kBarrierSize);
  }

  const WgmmaArgs& args_;
  const Shared& shared_;
  Finisher<T> finisher_;
  const int warp_, lane_, x_offset_;
  const uint32_t target_;
  StageCursor stage_;
  int previous_ = 0;
  float sums_[kSums];
};

__device__ inline void init_barriers(const Shared& shared) {
  for (int i = 0; i < kNumStages; ++i) {
    init_barrier(shared.full(i), 1);
    init_barrier(shared.empty(i), kWgmmaClusterSize * kConsumerWarps);
  }
  publish_barriers();
}

template <typename T>
__global__ void __launch_bounds__(kNumThreads, 1)
    wgmma_linear(const __grid_constant__ WgmmaArgs args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.weight);
    init_barriers(shared);
  }
  allow_next_grid();
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    const int warp = threadIdx.x / kWarpSize - kConsumerWarps;
    if (warp == 0 && is_elected()) copy_weight(args, shared);
    if (warp == 1 && is_elected()) copy_x(args, shared);
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    wait_for_previous_grid();
    Multiplier<T> multiplier(args, shared);
    for_tiles(args, [&](int row_tile, int column_tile) { multiplier.run(row_tile, column_tile); });
    multiplier.finish();
  }
  // Until then the other block writes here.
  arrive_at_cluster();
  wait_for_cluster();
}

// `launch_wgmma` of one type, in a file of its own.
template <typename T>
gpuError_t launch_wgmma(const WgmmaArgs& args, gpuStream_t stream) {
  auto* kernel = &wgmma_linear<T>;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedSize);
  if (error != cudaSuccess) return error;
  return launch_clusters(kernel,
                         args.num_clusters * kWgmmaClusterSize,
                         kWgmmaClusterSize,
                         kNumThreads,
                         kSharedSize,
                         stream,
                         args.params.overlaps_previous,
                         args);
}

}  // namespace atom::ops::device::wgmma
