// Inside fused_moe by whole tiles in FP8 on Hopper: what becomes of a tile's sums without the
// activation.
#pragma once

#include "ops/fused_moe/moe_whole_float8_output.cuh"

namespace atom::ops::device::whole8 {

// Without the activation: a warp's rows leave in boxes by the copy engine, while the next products
// are under way; its last ones, which are no whole box, by its threads.
class ResultOutput {
 public:
  __device__ ResultOutput(const MoeWholeFloat8Args& args, const Shared& shared)
      : args_(args), boxes_(shared.boxes()) {}

  __device__ __forceinline__ void store(const Tile& tile, Sums& sums) const {
    const int first_row = tile.first_row + at_.row / kBoxRows * kBoxRows;
    const bool is_whole = __shfl_sync(kAllLanes, first_row + kBoxRows <= tile.end_row, 0);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int first = first_row_of<false>(args_, tile, part);
      scale_outputs(args_, tile, at_, first, sums[part]);
      if (is_whole) {
        store_boxes(first_row, first, sums[part]);
      } else {
        store_rows(tile, first, sums[part]);
      }
    }
  }

  // Returns when all is stored.
  __device__ void finish() const {
    if (threadIdx.x % kWarpSize == 0) wait_for_stores();
  }

 private:
  static constexpr uint32_t kAllLanes = 0xffffffffu;
  static constexpr int kBoxRuns = kBoxOutputs / kOrderedRows;

  static __device__ __forceinline__ uint4 run_of(const float (&values)[kSums], int run, int row) {
    const auto pair = [&](int i) {
      return bits_of_pair<BFloat16>(values[place_of_sum(run, row, i)],
                                    values[place_of_sum(run, row, i + 1)]);
    };
    return uint4{pair(0), pair(2), pair(4), pair(6)};
  }

  __device__ __forceinline__ void store_boxes(int first_row,
                                              int first,
                                              const float (&values)[kSums]) const {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int i = 0; i < kRuns / kBoxRuns; ++i) {
      const uint32_t box = boxes_ + i % kBoxes * kBoxSize;
      if (lane == 0) wait_for_box();
      __syncwarp();
#pragma unroll
      for (int run = 0; run < kBoxRuns; ++run) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const int of_box = lane / 4 + row * 8, vector = run * 4 + at_.q;
          store_shared(box + of_box * kPanelSize + (vector ^ of_box % 8) * kVectorSize,
                       run_of(values, i * kBoxRuns + run, row));
        }
      }
      fence_before_copies();
      __syncwarp();
      if (lane == 0) {
        store_box(&args_.results, box, first + i * kBoxOutputs, first_row);
        commit_stores();
      }
    }
  }

  __device__ __forceinline__ void store_rows(const Tile& tile,
                                             int first,
                                             const float (&values)[kSums]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int of_experts = tile.first_row + at_.row + row * 8;
      auto* const out = static_cast<BFloat16*>(args_.scratch.results) +
                        int64_t{of_experts} * args_.num_outputs + first;
      if (of_experts >= tile.end_row) break;
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        if (first + run * kOrderedRows >= args_.num_outputs) break;
        store_bits(out + at_.output_of(run), run_of(values, run, row));
      }
    }
  }

  // Returns when the box may be written again that left before the last ones.
  static __device__ void wait_for_box() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBoxes - 1) : "memory");
  }

  static __device__ void store_shared(uint32_t address, const uint4& bits) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(bits.x),
                 "r"(bits.y),
                 "r"(bits.z),
                 "r"(bits.w)
                 : "memory");
  }

  const MoeWholeFloat8Args& args_;
  const Place at_;
  const uint32_t boxes_;
};

}  // namespace atom::ops::device::whole8
