// Inside fused_moe for many tokens on Hopper: the kernel. Of a block's three warpgroups the first
// copies rows of x and of a matrix to a ring of stages, by one thread; the others multiply the
// halves of a tile's rows, and store a tile while the next one's first products are under way. A
// tile's columns are 256 rows of an expert's matrix: with the activation 128 gates and their ups.
#pragma once

#include "ops/fused_moe/moe_wgmma_finish.cuh"
#include "ops/linear/wgmma/product.cuh"

namespace atom::ops::device::moe {

template <bool kGated, bool kPlain>
class Multiplier {
 public:
  __device__ Multiplier(const MoeWgmmaArgs& args, const Shared& shared)
      : args_(args),
        shared_(shared),
        finisher_(args, shared),
        warp_(threadIdx.x / kWarpSize),
        x_offset_(warp_ / 4 * kWarpgroupRows * kPanelSize) {}

  __device__ void run(const MoeTile& tile) {
    const int first_row = tile.first_row + warp_ / 4 * kWarpgroupRows;
    const bool exists = first_row < tile.end_row;
    if (!exists || args_.num_chunks < kSlices) finish();
    if (!exists) return skip();
    multiply();
    finisher_.take(sums_, tile, first_row + warp_ % 4 * 16);
  }

  __device__ void finish() {
    finisher_.finish_all();
    is_finished_ = true;
  }

 private:
  static constexpr int kSlices = Finisher<kGated, kPlain>::kSlices;
  static constexpr int kSums = kTileColumns / 2;  // of a thread
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
    is_finished_ = false;
  }

  template <int... kEach>
  __device__ void multiply_slices(std::integer_sequence<int, kEach...>) {
    (multiply_and_finish<kEach>(), ...);
  }

  // A chunk, and meanwhile a part of the tile before.
  template <int kSlice>
  __device__ void multiply_and_finish() {
    multiply_chunk(kSlice > 0);
    if (!is_finished_) finisher_.template finish_slice<kSlice>();
  }

  __device__ void multiply_chunk(bool keeps) {
    const uint64_t a = matrix_at(shared_.x(stage_.index) + x_offset_);
    const uint64_t b = matrix_at(shared_.matrix(stage_.index));
    wait_for(shared_.full(stage_.index), stage_.parity);
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      wgmma::multiply_by_256<BFloat16>(sums_, a + offset, b + offset, keeps || i > 0);
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

  __device__ void release(int stage) const {
    if (threadIdx.x % kWarpSize == 0) arrive(shared_.empty(stage));
  }

  const MoeWgmmaArgs& args_;
  const Shared& shared_;
  Finisher<kGated, kPlain> finisher_;
  const int warp_, x_offset_;
  StageCursor stage_;
  int previous_ = 0;
  bool is_finished_ = true;  // the tile before
  float sums_[kSums];
};

template <bool kGated, bool kPlain>
__global__ void __launch_bounds__(kNumThreads, 1)
    moe_wgmma(const __grid_constant__ MoeWgmmaArgs args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.matrices);
    for (int i = 0; i < kNumStages; ++i) {
      init_barrier(shared.full(i), 1);
      init_barrier(shared.empty(i), kConsumerWarps);
    }
    publish_barriers();
  }
  allow_next_grid();
  __syncthreads();
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x / kWarpSize == kConsumerWarps) copy_tiles<kGated>(args, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Multiplier<kGated, kPlain> multiplier(args, shared);
    for_tiles(args, [&](const MoeTile& tile) { multiplier.run(tile); });
    multiplier.finish();
  }
}

}  // namespace atom::ops::device::moe
