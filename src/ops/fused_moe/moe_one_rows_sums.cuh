// Inside fused_moe for one token by experts in bfloat16 or MXFP4 on Hopper: what the warps' sums of
// tiles become.
#pragma once

#include "ops/fused_moe/moe_one_rows_stage.cuh"

namespace atom::ops::device::moe_one_rows {

// Of a warp that multiplies.
template <typename W>
class TileSums {
 public:
  __device__ TileSums(const MoeOneRowsArgs& args, Shared<W>& shared)
      : args_(args),
        call_(args.call),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize) {}

  // What the warp has of row `g` of each half of a tile.
  __device__ void keep(int slot, int g, float first, float second) {
    float(&sums)[kTileRows] = shared_.sums[slot][warp_ % kSumWarps];
    sums[g] = first;
    sums[kHalfRows + g] = second;
  }

  // Adds up what the warps have of `count` tiles, of which the block's `base`th is the first, a
  // tile by a warp.
  __device__ void finish_gates(int base, int count) {
    synchronize_first<kNumConsumers>();
    if (warp_ < count) finish_gate(base + warp_);
    synchronize_first<kNumConsumers>();
  }

  // The same of the result's rows, eight by a warp.
  __device__ void finish_units(int base, int count) {
    synchronize_first<kNumConsumers>();
    if (warp_ < count) {
      finish_unit(static_cast<int>(gridDim.x - 1 - blockIdx.x + (base + warp_) * gridDim.x));
    }
    synchronize_first<kNumConsumers>();
  }

 private:
  using Format = RowFormat<W>;
  static constexpr int kSumWarps = Shared<W>::kSumWarps;

  __device__ void finish_gate(int index) const {
    const int tiles = call_.intermediate_size / kHalfRows;
    const int i = static_cast<int>(blockIdx.x + index * gridDim.x);
    const int choice = i / tiles, lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int row = lane % kTileRows, first = lane / kTileRows * (kSumWarps / 2);
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kSumWarps / 2; ++w) sum += shared_.sums[warp_][first + w][row];
    sum += exchange(sum, kTileRows);
    const float up = exchange(sum, kHalfRows);
    if (lane >= kHalfRows) return;
    const int output = (i - choice * tiles) * kHalfRows + lane, size = call_.intermediate_size;
    const bool interleaved = call_.activation.is_interleaved;
    const float result =
        activated(call_.activation,
                  biased(choice, interleaved ? 2 * output : output, sum),
                  biased(choice, interleaved ? 2 * output + 1 : size + output, up));
    static_cast<BFloat16*>(args_.scratch.activated)[choice * size + output] =
        from_float<BFloat16>(result);
  }

  // Of a row of a choice's gates and ups.
  __device__ float biased(int choice, int row, float sum) const {
    const int expert = shared_.choices[choice].expert;
    return sum * Format::kUnit + bias_at(call_.gate_up, expert, row, 2 * call_.intermediate_size);
  }

  __device__ void finish_unit(int unit) const {
    constexpr int kLaneParts = kWarpSize / kHalfRows;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int row = lane % kHalfRows, first = lane / kHalfRows * (kSumWarps / kLaneParts);
    const int pairs = num_pairs(shared_.num_choices);
    float sum = 0;
    for (int pair = 0; pair < pairs; ++pair) {
#pragma unroll
      for (int w = 0; w < kSumWarps / kLaneParts; ++w) {
        const float(&some)[kTileRows] = shared_.sums[warp_ * pairs + pair][first + w];
        sum += some[row] + some[kHalfRows + row];
      }
    }
    sum += exchange(sum, kHalfRows);
    sum += exchange(sum, kTileRows);
    if (lane >= kHalfRows) return;
    const int output = unit * kHalfRows + row;
    float result = sum * Format::kUnit;
    for (int choice = 0; choice < shared_.num_choices; ++choice) {
      const Choice& own = shared_.choices[choice];
      result += own.weight * bias_at(call_.down, own.expert, output, call_.hidden_size);
    }
    moe_one::store_result(call_, output, result);
  }

  const MoeOneRowsArgs& args_;
  const FusedMoeGpuCall& call_;
  Shared<W>& shared_;
  const int warp_;
};

}  // namespace atom::ops::device::moe_one_rows
