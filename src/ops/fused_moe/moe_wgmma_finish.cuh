// Inside fused_moe for many tokens on Hopper: what becomes of a tile's sums.
#pragma once

#include <utility>

#include "ops/fused_moe/moe_wgmma_stage.cuh"

namespace atom::ops::device::moe {

// Of a warp: 16 rows of a tile. kPlain: silu of gates that are before all ups, and no biases; what
// else there is would be too many instructions for their cache. take() makes outputs of the sums,
// and finish_slice() of all slices in turn stores them, which the products of the next tile hide.
template <bool kGated, bool kPlain>
class Finisher {
 public:
  static constexpr int kSlices = 4;  // two of eight rows, two of the other ones

  __device__ Finisher(const MoeWgmmaArgs& args, const Shared& shared)
      : args_(args), lane_(threadIdx.x % kWarpSize), rows_(shared.rows(threadIdx.x / kWarpSize)) {}

  // `row`: the warp's first.
  __device__ void take(const float (&sums)[kTileColumns / 2], const MoeTile& tile, int row) {
    tile_ = tile;
    row_ = row;
    has_tile_ = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) take_row(sums, half);
  }

  template <int kSlice>
  __device__ void finish_slice() {
    if (!has_tile_) return;
    constexpr int kHalf = kSlice / 2, kPart = kSlice % 2;
    constexpr int kAtOnce = 32, kFirst = kPart * kOutputs / 2;  // columns
    const uint32_t target = shared_address(rows_) + lane_ % 8 * kRowStride + lane_ / 8 * 16;
#pragma unroll
    for (int column = kFirst; column < kFirst + kOutputs / 2; column += kAtOnce) {
      uint32_t matrices[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) matrices[i] = pairs_[kHalf][column / 8 + i];
      store_matrices(target + column * 2, matrices);
    }
    if (kPart == 0) return;
    __syncwarp();
    store_rows(row_ + kHalf * kRowsAtOnce);
    __syncwarp();
  }

  __device__ void finish_all() {
    finish_slices(std::make_integer_sequence<int, kSlices>());
  }

 private:
  static constexpr int kOutputs = kGated ? kTileColumns / 2 : kTileColumns;
  static constexpr int kPairs = kOutputs / 8;  // of a thread in each of its two rows

  template <int... kEach>
  __device__ void finish_slices(std::integer_sequence<int, kEach...>) {
    (finish_slice<kEach>(), ...);
  }

  // The thread's row of the first or the other eight.
  __device__ void take_row(const float (&sums)[kTileColumns / 2], int half) {
    const int first_output = tile_.column_tile * kOutputs;
    if constexpr (!kGated) {
      const int row = row_ + half * kRowsAtOnce + lane_ / 4;
      float weight = 0;
      if (row < tile_.end_row) {
        weight = gpu_load_from_l2(args_.call.weights +
                                  gpu_load_from_l2(args_.scratch.shared.choices + row));
      }
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const int output = first_output + i * 8 + lane_ % 4 * 2;
        const float first = sums[4 * i + 2 * half] + bias(output);
        const float second = sums[4 * i + 2 * half + 1] + bias(output + 1);
        pairs_[half][i] = bits_of_pair<BFloat16>(weight * first, weight * second);
      }
    } else if (!kPlain && args_.call.activation.is_interleaved) {
      // Column pairs are a gate and its up: blocks i and i + 1 of eight columns become one of four
      // outputs each, so that a quad's lanes have outputs t and t + 4 of eight; lanes exchange them
      // for pairs.
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        float values[2];
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          const int place = 4 * (2 * i + b) + 2 * half;
          const int output = first_output + i * 8 + b * 4 + lane_ % 4;
          values[b] =
              activated_of(sums[place] + bias(2 * output), sums[place + 1] + bias(2 * output + 1));
        }
        pairs_[half][i] = paired(values[0], values[1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const int output = first_output + i * 8 + lane_ % 4 * 2;
        float values[2];
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          values[b] = activated_of(
              sums[4 * i + 2 * half + b] + bias(output + b),
              sums[4 * (i + kPairs) + 2 * half + b] + bias(args_.num_rows / 2 + output + b));
        }
        pairs_[half][i] = bits_of_pair<BFloat16>(values[0], values[1]);
      }
    }
  }

  // Of eight outputs lane t of a quad has t in `low` and t + 4 in `high`; it gets 2 t and 2 t + 1.
  __device__ uint32_t paired(float low, float high) const {
    const int t = lane_ % 4, quad = lane_ - t, from = quad + 2 * t % 4;
    const float low_first = gpu_shuffle(low, from), low_second = gpu_shuffle(low, from + 1);
    const float high_first = gpu_shuffle(high, from), high_second = gpu_shuffle(high, from + 1);
    return t < 2 ? bits_of_pair<BFloat16>(low_first, low_second)
                 : bits_of_pair<BFloat16>(high_first, high_second);
  }

  __device__ float activated_of(float gate, float up) const {
    const GatedActivation& activation = args_.call.activation;
    return !kPlain && activation.kind == GatedActivationKind::kClampedSwiGlu
               ? clamped_swiglu(activation, gate, up)
               : silu_of(gate) * up;
  }

  // Of a row of the matrix; of one that does not exist another one's.
  __device__ float bias(int row) const {
    if (kPlain || args_.own.bias == nullptr) return 0.0f;
    const int64_t place = int64_t{tile_.expert} * args_.num_rows + min(row, args_.num_rows - 1);
    return args_.own.bias_element == Element::kFloat32
               ? static_cast<const float*>(args_.own.bias)[place]
               : to_float(static_cast<const BFloat16*>(args_.own.bias)[place]);
  }

  __device__ void store_rows(int first_row) const {
    constexpr int kPieces = kOutputs / 8;  // of a row, 16 bytes each
    const int first_output = tile_.column_tile * kOutputs;
    auto* out =
        static_cast<BFloat16*>(kGated ? args_.scratch.shared.activated : args_.scratch.results);
#pragma unroll
    for (int i = 0; i < kPieces * kRowsAtOnce; i += kWarpSize) {
      const int piece = (i + lane_) % kPieces, local = (i + lane_) / kPieces;
      const int output = first_output + piece * 8, row = first_row + local;
      if (row >= tile_.end_row || output >= args_.num_outputs) continue;
      const int64_t out_row = kGated ? row : gpu_load_from_l2(args_.scratch.shared.choices + row);
      store_bits(out + out_row * args_.num_outputs + output,
                 load_bits(rows_ + local * kRowStride + piece * 16));
    }
  }

  const MoeWgmmaArgs& args_;
  const int lane_;
  uint8_t* const rows_;
  MoeTile tile_{};
  int row_ = 0;
  bool has_tile_ = false;
  uint32_t pairs_[2][kPairs];
};

}  // namespace atom::ops::device::moe
