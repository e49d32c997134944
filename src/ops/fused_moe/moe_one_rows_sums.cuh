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

  // What the warp has of a row of a half of a tile, which is one team's.
  __device__ void keep(int slot, int half, int row, float sum) {
    shared_.sums[slot][warp_ % kTeamWarps][half * kHalfRows + row] = sum;
  }

  // Adds up what the warps have of `count` tiles, of which the block's `base`th is the first, a
  // tile by a warp.
  __device__ void finish_gates(int base, int count) {
    const GateBias bias = base == 0 ? first_gates_ : gate_bias(base);
    synchronize_first<kNumConsumers>();
    if (warp_ < count) finish_gate(base + warp_, bias);
    synchronize_first<kNumConsumers>();
  }

  // The same of the result's rows, eight by a warp.
  __device__ void finish_units(int base, int count) {
    const float bias = base == 0 ? first_units_ : unit_bias(base);
    synchronize_first<kNumConsumers>();
    if (warp_ < count) finish_unit(unit_at(base), bias);
    synchronize_first<kNumConsumers>();
  }

  // What is added to the first tiles' sums, which memory takes long to give.
  __device__ void ask_for_biases() {
    first_gates_ = gate_bias(0);
    first_units_ = unit_bias(0);
  }

 private:
  using Format = RowFormat<W>;

  // Of a lane's output, if it has one.
  struct GateBias {
    float gate = 0, up = 0;
  };

  // Of the warp's tile.
  __device__ GateBias gate_bias(int base) const {
    const int tiles = call_.intermediate_size / kHalfRows;
    const int i = static_cast<int>(blockIdx.x + (base + warp_) * gridDim.x);
    const int choice = i / tiles, lane = static_cast<int>(threadIdx.x) % kWarpSize;
    if (call_.gate_up.bias == nullptr || choice >= shared_.num_choices || lane >= kHalfRows) {
      return {};
    }
    const int output = (i - choice * tiles) * kHalfRows + lane, size = call_.intermediate_size;
    const bool interleaved = call_.activation.is_interleaved;
    const int expert = shared_.choices[choice].expert;
    const auto bias = [&](int row) { return bias_at(call_.gate_up, expert, row, 2 * size); };
    return {bias(interleaved ? 2 * output : output),
            bias(interleaved ? 2 * output + 1 : size + output)};
  }

  __device__ int unit_at(int base) const {
    return static_cast<int>(gridDim.x - 1 - blockIdx.x + (base + warp_) * gridDim.x);
  }

  // Of all choices, by their weights.
  __device__ float unit_bias(int base) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int output = unit_at(base) * kHalfRows + lane;
    if (call_.down.bias == nullptr || lane >= kHalfRows || output >= call_.hidden_size) return 0;
    float bias = 0;
#pragma unroll
    for (int choice = 0; choice < kMostChoices; ++choice) {
      if (choice >= shared_.num_choices) continue;
      const Choice& own = shared_.choices[choice];
      bias += own.weight * bias_at(call_.down, own.expert, output, call_.hidden_size);
    }
    return bias;
  }

  __device__ void finish_gate(int index, const GateBias& bias) const {
    const int tiles = call_.intermediate_size / kHalfRows;
    const int i = static_cast<int>(blockIdx.x + index * gridDim.x);
    const int choice = i / tiles, lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int row = lane % kTileRows, first = lane / kTileRows * (kTeamWarps / 2);
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kTeamWarps / 2; ++w) sum += shared_.sums[warp_][first + w][row];
    sum += exchange(sum, kTileRows);
    const float up = exchange(sum, kHalfRows);
    if (lane >= kHalfRows) return;
    const int output = (i - choice * tiles) * kHalfRows + lane;
    const float result =
        activated(call_.activation, sum * Format::kUnit + bias.gate, up * Format::kUnit + bias.up);
    own_activated<W>(args_)[choice * call_.intermediate_size + output] =
        from_float<BFloat16>(result);
  }

  __device__ void finish_unit(int unit, float bias) const {
    constexpr int kLaneParts = kWarpSize / kHalfRows;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int row = lane % kHalfRows, first = lane / kHalfRows * (kTeamWarps / kLaneParts);
    const int pairs = num_pairs(shared_.num_choices);
    float sum = 0;
    for (int pair = 0; pair < pairs; ++pair) {
#pragma unroll
      for (int w = 0; w < kTeamWarps / kLaneParts; ++w) {
        const float(&some)[kTileRows] = shared_.sums[warp_ * pairs + pair][first + w];
        sum += some[row] + some[kHalfRows + row];
      }
    }
    sum += exchange(sum, kHalfRows);
    sum += exchange(sum, kTileRows);
    if (lane >= kHalfRows) return;
    const int output = unit * kHalfRows + row;
    moe_one::store_result(call_, own_token<W>(), output, sum * Format::kUnit + bias);
  }

  const MoeOneRowsArgs& args_;
  const FusedMoeGpuCall& call_;
  Shared<W>& shared_;
  const int warp_;
  GateBias first_gates_;
  float first_units_ = 0;
};

}  // namespace atom::ops::device::moe_one_rows
