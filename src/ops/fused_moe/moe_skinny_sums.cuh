// Inside fused_moe for few tokens by experts in FP8 on Hopper: the sums of a tile. What 128 of k
// give is added up by the matrix units, then scaled as it joins the sums, while the next products
// are under way. Warpgroups take stages in turns.
#pragma once

#include "ops/fused_moe/moe_skinny_shared.cuh"
#include "ops/linear/skinny/wgmma.cuh"

namespace atom::ops::device::moe_skinny {

// Of a warpgroup: of 64 rows of each half with kColumns rows of x.
template <int kColumns>
class TileSums {
 public:
  static constexpr int kSums = kColumns / 2;  // of a thread and a half

  __device__ void add_tile(const Shared<kColumns>& shared,
                           const MatrixArgs& matrix,
                           const Item& item,
                           StageCursor& stage,
                           StageCursor& x_stage) {
    constexpr int kNumStages = Shared<kColumns>::kNumStages;
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums_[0][i] = sums_[1][i] = 0;
    for (int panel = 0; panel < matrix.num_panels; panel += matrix.chunk_panels) {
      const int count = min(matrix.chunk_panels, matrix.num_panels - panel);
      wait_for(shared.x_full(x_stage.index), x_stage.parity);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half >= item.num_halves) break;
        if (warpgroup() == 1) stage.advance(kNumStages);
        wait_for(shared.full(stage.index), stage.parity);
        add_stage(half,
                  count,
                  {matrix_at(shared.matrix(stage.index)),
                   matrix_at(shared.x(x_stage.index)),
                   item.scales + panel,
                   shared.x_scales(x_stage.index)});
        release(shared.empty(stage.index));
        stage.advance(kNumStages);
        if (warpgroup() == 0) stage.advance(kNumStages);
      }
      release(shared.x_empty(x_stage.index));
      x_stage.advance(Shared<kColumns>::kNumXStages);
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

  static __device__ int warpgroup() {
    return static_cast<int>(threadIdx.x) / (kWarpgroupWarps * kWarpSize);
  }

  // What a stage has, of one of the two halves of its tile.
  struct StageParts {
    uint64_t a, b;
    const float2* scales;
    uint32_t x_scales;
  };

  __device__ void add_stage(int half, int count, const StageParts& parts) {
    switch (count) {
      case 1:
        return add_panels<1>(half, parts);
      case 2:
        return add_panels<2>(half, parts);
      case 3:
        return add_panels<3>(half, parts);
      default:
        return add_panels<kChunkPanels>(half, parts);
    }
  }

  template <int kCount>
  __device__ void add_panels(int half, const StageParts& stage) {
    float parts[kCount][kSums];
#pragma unroll
    for (int panel = 0; panel < kCount; ++panel) {
      begin_panel(parts[panel],
                  stage.a + matrix_offset(panel * kPanelBytes),
                  stage.b + matrix_offset(panel * Shared<kColumns>::kXPanelBytes));
    }
#pragma unroll
    for (int panel = 0; panel < kCount; ++panel) {
      wait_for_products(kCount - 1 - panel);
      pin(parts[panel]);
      const float2 scales = stage.scales[panel];
      add(half,
          parts[panel],
          half == 0 ? scales.x : scales.y,
          stage.x_scales + panel * Shared<kColumns>::kXPanelScales);
    }
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

  static __device__ void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(barrier);
  }

  float sums_[2][kSums];
};

}  // namespace atom::ops::device::moe_skinny
