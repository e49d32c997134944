// Inside fused_moe by whole tiles in FP8 on Hopper: the sums of a tile. A stage is 128 of k, of
// which x and the matrix have a scale each: its products are added up apart and then join the sums
// with their scales, while the other warpgroup's products run.
#pragma once

#include <type_traits>

#include "ops/device/code_products.cuh"
#include "ops/fused_moe/moe_whole_float8_result.cuh"

namespace atom::ops::device::whole8 {

template <bool kGated>
class Multiplier {
 public:
  __device__ Multiplier(const MoeWholeFloat8Args& args, const Shared& shared)
      : args_(args),
        shared_(shared),
        output_(args, shared),
        empty_(address_in(threadIdx.x % kWarpSize % kClusterSize, shared.empty(0))),
        to_x_(keep(kMatrixSize + at_.warpgroup * kXSize)),
        to_scales_(keep(at_.row * 4)),
        releases_(keep(threadIdx.x % kWarpSize) < kClusterSize) {
    if (at_.warpgroup == 1) give_turn(0);
  }

  __device__ __forceinline__ void run(const Tile& tile) {
    // The compiler knows that a warp has one.
    const int rows = __shfl_sync(kAllLanes, tile.end_row - tile.first_row, 0);
    if (rows <= at_.warpgroup * kWarpgroupTokens) return skip();
    Sums sums;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (float& sum : sums[part]) sum = 0;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const uint32_t stage = shared_.matrix(stage_.index);
      const uint64_t a = matrix_at(stage + to_x_), b = matrix_at(stage);
      const uint32_t scales = shared_.scales(stage_.index);
      wait_for(shared_.full(stage_.index), stage_.parity);
      // Before the turn, so that nothing waits for them in it.
      const float of_row[2] = {load(scales + to_scales_), load(scales + to_scales_ + 32)};
      const float of_part[kParts] = {load(scales + kTileTokens * 4),
                                     load(scales + kTileTokens * 4 + 4)};
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const float factors[2] = {of_row[0] * of_part[part], of_row[1] * of_part[part]};
        float products[kSums];
        multiply(products, a, b + matrix_offset(part * kPartSize));
        // The other warpgroup's products begin when these end, not among them.
        wait_for_products<1>();
        give_turn(1 - at_.warpgroup);
        wait_for_products<0>();
        pin(products);
        if (part == kParts - 1) release();
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          sums[part][i] = fmaf(products[i], factors[i / 2 % 2], sums[part][i]);
        }
      }
      stage_.advance(kNumStages);
    }
    output_.store(tile, sums);
  }

  __device__ void finish() const {
    output_.finish();
  }

 private:
  static constexpr uint32_t kAllLanes = 0xffffffffu;
  static constexpr int kFirstTurn = 2;  // the first warpgroup's barrier
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  // What the compiler does not work out again in every turn of a loop.
  static __device__ int keep(int of_lane) {
    return __shfl_sync(kAllLanes, of_lane, threadIdx.x % kWarpSize);
  }

  __device__ __forceinline__ void multiply(float (&products)[kSums], uint64_t a, uint64_t b) const {
    wait_for_turn();
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      multiply_codes<kPartRows>(products, a + offset, b + offset, i > 0);
      if (i == kSteps / 2 - 1) commit_products();
    }
    commit_products();
  }

  // A tile none of whose rows are the warpgroup's.
  __device__ void skip() {
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      wait_for(shared_.full(stage_.index), stage_.parity);
      for (int part = 0; part < kParts; ++part) {
        wait_for_turn();
        give_turn(1 - at_.warpgroup);
      }
      release();
      stage_.advance(kNumStages);
    }
  }

  static __device__ float load(uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
  }

  __device__ void wait_for_turn() const {
    asm volatile("bar.sync %0, %1;" ::"r"(kFirstTurn + at_.warpgroup), "n"(kNumConsumers)
                 : "memory");
  }
  static __device__ void give_turn(int warpgroup) {
    asm volatile("bar.arrive %0, %1;" ::"r"(kFirstTurn + warpgroup), "n"(kNumConsumers) : "memory");
  }

  // The current stage, to both blocks, which copy to it.
  __device__ void release() const {
    __syncwarp();
    if (releases_) arrive_in_cluster(empty_ + stage_.index * kBarrierSize);
  }

  const MoeWholeFloat8Args& args_;
  const Shared& shared_;
  const Place at_;
  std::conditional_t<kGated, CodeOutput, ResultOutput> output_;
  const uint32_t empty_;
  const uint32_t to_x_, to_scales_;  // of the warpgroup, and of the lane's first row
  const bool releases_;
  StageCursor stage_;
};

}  // namespace atom::ops::device::whole8
