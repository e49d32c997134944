// Inside fused_moe by wide tiles on Hopper: the kernel. Of a block's three warpgroups the first
// copies a tile's rows of a matrix and its tokens to a ring of stages, by a thread each; the others
// multiply the halves of the rows by as many tokens as there are.
#pragma once

#include "ops/fused_moe/moe_wide_copy.cuh"
#include "ops/fused_moe/moe_wide_output.cuh"
#include "ops/fused_moe/moe_wide_product.cuh"

namespace atom::ops::device::wide {

template <bool kGated>
class Multiplier {
 public:
  __device__ Multiplier(const MoeWideArgs& args, const Shared& shared)
      : args_(args),
        shared_(shared),
        output_(args, shared.output(threadIdx.x / kWarpSize)),
        lane_(threadIdx.x % kWarpSize),
        matrix_offset_(threadIdx.x / kWarpgroupSize * (kMatrixSize / 2)),
        target_(address_in(lane_ % kClusterSize, shared.empty(0))) {}

  __device__ void run(const MoeTile& tile) {
    output_.begin(tile);
    switch (token_units(tile)) {
      case 1:
        return run_with<1>();
      case 2:
        return run_with<2>();
      case 3:
        return run_with<3>();
      case 4:
        return run_with<4>();
      case 5:
        return run_with<5>();
      case 6:
        return run_with<6>();
      case 7:
        return run_with<7>();
      default:
        return run_with<8>();
    }
  }

 private:
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  template <int kUnits>
  __device__ void run_with() {
    constexpr int kTokens = kUnits * kTokenUnit;
    float sums[kTileTokens / 2];
    int previous = 0;
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const uint64_t a = matrix_at(shared_.matrix(stage_.index) + matrix_offset_);
      const uint64_t b = matrix_at(shared_.x(stage_.index));
      wait_for(shared_.full(stage_.index), stage_.parity);
      begin_products();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const uint64_t offset = matrix_offset(i * kStepSize);
        multiply<kTokens>(sums, a + offset, b + offset, chunk > 0 || i > 0);
      }
      commit_products();
      if (chunk > 0) {
        wait_for_products<1>();
        release(previous);
      }
      previous = stage_.index;
      stage_.advance(kNumStages);
    }
    wait_for_products<0>();
    pin(sums);
    release(previous);
    output_.template store<kTokens>(sums);
  }

  // To both blocks, which copy to this stage.
  __device__ void release(int stage) const {
    if (lane_ < kClusterSize) arrive_in_cluster(target_ + stage * kBarrierSize);
  }

  const MoeWideArgs& args_;
  const Shared& shared_;
  Output<kGated> output_;
  const int lane_, matrix_offset_;
  const uint32_t target_;
  StageCursor stage_;
};

template <bool kGated>
__global__ void __launch_bounds__(kNumThreads, 1)
    moe_wide(const __grid_constant__ MoeWideArgs args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.matrices);
    shared.init_barriers();
  }
  allow_next_grid();
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    const int warp = threadIdx.x / kWarpSize - kConsumerWarps;
    if (warp == 0) copy_matrices<kGated>(args, shared);
    if (warp == 1) copy_x(args, shared);
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Multiplier<kGated> multiplier(args, shared);
    for_tiles(args, [&](const MoeTile& tile) { multiplier.run(tile); });
  }
  // Until then the other block writes here.
  arrive_at_cluster();
  wait_for_cluster();
}

}  // namespace atom::ops::device::wide
