// Inside fused_moe for few tokens by experts in FP8 on Hopper: the sums of a tile. What 128 of k
// give is added up by the matrix units, then scaled as it joins the sums, for one half of the
// tile's rows while the products of the other are under way. Between stages the other warpgroup's
// products fill the gap.
#pragma once

#include "ops/fused_moe/moe_skinny_stage.cuh"
#include "ops/linear/skinny/wgmma.cuh"

namespace atom::ops::device::moe_skinny {

// Of a warpgroup: of 64 rows of each half with kColumns rows of x.
template <int kColumns>
class TileSums {
 public:
  static constexpr int kSums = kColumns / 2;  // of a thread and a half

  __device__ void add_panels(const Shared<kColumns>& shared,
                             const float2 (&scales)[kMaxPanels],
                             int num_panels,
                             StageCursor& stage) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums_[0][i] = sums_[1][i] = 0;
    for (int panel = 0; panel < num_panels; ++panel) {
      const float2 scale = scales[panel];
      wait_for(shared.full(stage.index), stage.parity);
      const uint64_t a = matrix_at(shared.matrix(stage.index) + warpgroup_offset());
      const uint64_t b = matrix_at(shared.x(stage.index));
      float parts[2][kSums];
      begin_panel(parts[0], a, b);
      begin_panel(parts[1], a + matrix_offset(kHalfSize), b);
      wait_for_products<1>();
      pin(parts[0]);
      add(0, parts[0], scale.x, shared.scales(stage.index));
      wait_for_products<0>();
      pin(parts[1]);
      add(1, parts[1], scale.y, shared.scales(stage.index));
      release(shared, stage.index);
      stage.advance(Shared<kColumns>::kNumStages);
    }
  }

  // Of the warp's row lane / 4 or the one eight below, and the `pair`th of the thread's pairs of
  // columns, lane % 4 * 2 of each eight.
  __device__ float2 at(int half, int lower, int pair) const {
    const int i = 4 * pair + 2 * lower;
    return make_float2(sums_[half][i], sums_[half][i + 1]);
  }

 private:
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  static __device__ int warpgroup_offset() {
    constexpr int kWarpgroupSize = kWarpgroupWarps * kWarpSize;
    return static_cast<int>(threadIdx.x) / kWarpgroupSize * (kHalfSize / 2);
  }

  static __device__ void begin_panel(float (&part)[kSums], uint64_t a, uint64_t b) {
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      multiply<Float8, kColumns>(part, a + offset, b + offset, i > 0);
    }
    commit_products();
  }

  __device__ void add(int half, const float (&part)[kSums], float scale, uint32_t x_scales) {
    const uint32_t own = x_scales + threadIdx.x % 4 * 2 * int{sizeof(float)};
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      float2 factor;
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(factor.x), "=f"(factor.y)
                   : "r"(own + i * 2 * int{sizeof(float)}));
      factor.x *= scale;
      factor.y *= scale;
      sums_[half][i] = fmaf(part[i], factor.x, sums_[half][i]);
      sums_[half][i + 1] = fmaf(part[i + 1], factor.y, sums_[half][i + 1]);
      sums_[half][i + 2] = fmaf(part[i + 2], factor.x, sums_[half][i + 2]);
      sums_[half][i + 3] = fmaf(part[i + 3], factor.y, sums_[half][i + 3]);
    }
  }

  static __device__ void release(const Shared<kColumns>& shared, int stage) {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(shared.empty(stage));
  }

  float sums_[2][kSums];
};

}  // namespace atom::ops::device::moe_skinny
