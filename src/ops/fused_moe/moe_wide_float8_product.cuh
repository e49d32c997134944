// Inside fused_moe by wide tiles in FP8 on Hopper: the sums of a tile. A stage is 128 of k, of
// which x and the matrix have a scale each: its products are added up apart and then join the sums
// with their scales, while the other warpgroup's products run.
#pragma once

#include <type_traits>

#include "ops/device/code_products.cuh"
#include "ops/fused_moe/moe_wide_float8_codes.cuh"
#include "ops/fused_moe/moe_wide_float8_output.cuh"

namespace atom::ops::device::wide8 {

template <bool kGated>
class Multiplier {
 public:
  __device__ Multiplier(const MoeWideFloat8Args& args, const Shared& shared)
      : args_(args),
        shared_(shared),
        output_(args, shared),
        empty_(address_in(at_.lane % kClusterSize, shared.empty(0))) {
    if (at_.warpgroup == 1) give_turn(0);
  }

  __device__ __forceinline__ void run(const Tile& tile) {
    output_.begin(tile);
    switch (tile.units) {
      case 1:
        return run_with<1>(tile);
      case 2:
        return run_with<2>(tile);
      case 3:
        return run_with<3>(tile);
      case 4:
        return run_with<4>(tile);
      case 5:
        return run_with<5>(tile);
      case 6:
        return run_with<6>(tile);
      case 7:
        return run_with<7>(tile);
      default:
        return run_with<8>(tile);
    }
  }

 private:
  static constexpr int kFirstTurn = 2;  // the first warpgroup's barrier
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;
  static constexpr int kHandOver = 2;  // steps of a product that have ended when the turn is given
  static constexpr int kEarlyUnits = 2;  // whose scales are loaded before products end
  // Groups of eight rows of a matrix are by turns of one product and of the other.
  static constexpr uint64_t kToEveryOther = uint64_t{kGated ? 0 : 1024 >> 4} << 32;
  static constexpr int kToSecond = kGated ? kPartSize : 1024;

  template <int kUnits>
  __device__ __forceinline__ void run_with(const Tile& tile) {
    float sums[kProducts][8 * kUnits];
#pragma unroll
    for (int m = 0; m < kProducts; ++m) {
#pragma unroll
      for (float& sum : sums[m]) sum = 0;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const uint64_t a =
          matrix_at(shared_.matrix(stage_.index) + at_.warpgroup * kProducts * kPartSize) +
          kToEveryOther;
      const uint64_t b = matrix_at(shared_.x(stage_.index));
      const uint32_t scales = shared_.scales(stage_.index) + at_.q * kVectorSize;
      wait_for(shared_.full(stage_.index), stage_.parity);
#pragma unroll
      for (int m = 0; m < kProducts; ++m) {
        float products[8 * kUnits];
        multiply<kUnits>(products, a + matrix_offset(m * kToSecond), b);
        if (m == 0 && chunk == 0) output_.continue_to_begin();
        // The other warpgroup's products begin when these end, not among them.
        wait_for_products<1>();
        give_turn(1 - at_.warpgroup);
        const uint32_t own = scales + (kGated ? m : at_.warpgroup) * (kScalesSize / 2);
        uint4 first[kEarlyUnits];
#pragma unroll
        for (int u = 0; u < kEarlyUnits; ++u) first[u] = load_shared(own + u * kTokenUnit * 4);
        wait_for_products<0>();
        pin(products);
        add_scaled<kUnits>(sums[m], products, first, own);
      }
      release();
      stage_.advance(kNumStages);
    }
    output_.template store<kUnits>(tile, sums);
  }

  template <int kUnits>
  __device__ __forceinline__ void multiply(float (&products)[8 * kUnits],
                                           uint64_t a,
                                           uint64_t b) const {
    wait_for_turn();
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      multiply_codes<kUnits * kTokenUnit>(products, a + offset, b + offset, i > 0);
      if (i == kHandOver - 1) commit_products();
    }
    commit_products();
  }

  template <int kUnits>
  static __device__ __forceinline__ void add_scaled(float (&sums)[8 * kUnits],
                                                    const float (&products)[8 * kUnits],
                                                    const uint4 (&first)[kEarlyUnits],
                                                    uint32_t scales) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const uint4 bits = u < kEarlyUnits ? first[u] : load_shared(scales + u * kTokenUnit * 4);
      const float of_token[4] = {__uint_as_float(bits.x),
                                 __uint_as_float(bits.y),
                                 __uint_as_float(bits.z),
                                 __uint_as_float(bits.w)};
#pragma unroll
      for (int t = 0; t < 4; ++t) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const int i = place_of_sum(u, t, row);
          sums[i] = fmaf(products[i], of_token[t], sums[i]);
        }
      }
    }
  }

  // Products of one warpgroup begin after those of the other one: so that one scales while the
  // matrix units work for the other, and not both at a time.
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
    if (at_.lane < kClusterSize) arrive_in_cluster(empty_ + stage_.index * kBarrierSize);
  }

  const MoeWideFloat8Args& args_;
  const Shared& shared_;
  const Place at_;
  std::conditional_t<kGated, CodeOutput, ResultOutput> output_;
  const uint32_t empty_;
  StageCursor stage_;
};

}  // namespace atom::ops::device::wide8
