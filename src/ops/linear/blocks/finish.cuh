// Inside the linear in FP8 with scales of groups on Hopper: what becomes of a tile's sums.
#pragma once

#include "ops/device/bulk_copy.cuh"
#include "ops/linear/blocks/shape.cuh"
#include "ops/linear/linear_epilogue.cuh"

namespace atom::ops::device::blocks {

// A warp's 16 rows of x by the columns of the tile pass through shared memory to the TMA, which
// stores those that exist while the next products are under way.
template <typename S>
class Finisher {
 public:
  __device__ Finisher(const BlocksArgs& args, const Shared<S>& shared)
      : args_(args),
        lane_(threadIdx.x % kWarpSize),
        rows_(shared.rows(threadIdx.x / kWarpSize)),
        is_gated_(args.params.epilogue == LinearEpilogue::kSiluAndMul) {}

  // `row`: the warp's first.
  __device__ __forceinline__ void store(const float (&sums)[S::kColumns / 2],
                                        int row,
                                        int column_tile) const {
    if (args_.params.y_element == Element::kFloat16) {
      store_as<Half>(sums, row, column_tile);
    } else {
      store_as<BFloat16>(sums, row, column_tile);
    }
  }

  // Returns when all is stored.
  __device__ void wait() const { wait_for_stores(); }

 private:
  static constexpr int kHalfSums = S::kColumns / 4;  // of a thread, from a gate's to its up's
  static constexpr int kBoxColumns = S::kBoxColumns;
  static constexpr int kRowSize = kBoxColumns * 2;  // of a box, whose 16 bytes its swizzle permutes

  template <typename T>
  __device__ __forceinline__ void store_as(const float (&sums)[S::kColumns / 2],
                                           int row,
                                           int column_tile) const {
    if (is_gated_) {
      if constexpr (S::kHalfColumns == kBoxColumns) return store<T, true>(sums, row, column_tile);
    } else {
      store<T, false>(sums, row, column_tile);
    }
  }

  template <typename T, bool kGated>
  __device__ __forceinline__ void store(const float (&sums)[S::kColumns / 2],
                                        int row,
                                        int column_tile) const {
    constexpr int kOutputs = kGated ? S::kHalfColumns : S::kColumns;
    const int first = column_tile * kOutputs;
#pragma unroll
    for (int column = 0; column < kOutputs; column += kBoxColumns) {
      // The box before has left.
      if (lane_ == 0) wait_for_reads_of_stores();
      __syncwarp();
#pragma unroll
      for (int block = column / 8; block < (column + kBoxColumns) / 8; block += 2) {
        uint32_t matrices[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          matrices[i] = outputs<T, kGated>(sums, block + i / 2, i % 2, first);
        }
        store_matrices(address_of(block - column / 8), matrices);
      }
      fence_before_copies();
      __syncwarp();
      if (lane_ == 0) {
        store_box(&args_.y, rows_, first + column, row);
        commit_stores();
      }
    }
  }

  // Where this lane's row of one of four matrices of eight rows and columns goes: the upper and the
  // lower rows of a block of columns, then those of the next one.
  __device__ uint32_t address_of(int block) const {
    const int row = lane_ % 16, column = block + lane_ / 16;
    const int swizzled = kRowSize == kPanelSize ? (column ^ row) & 7 : (column ^ row / 2) & 3;
    return rows_ + row * kRowSize + swizzled * kVectorSize;
  }

  // Two adjacent outputs, in the thread's upper or lower row of a block of eight columns.
  template <typename T, bool kGated>
  __device__ __forceinline__ uint32_t
  outputs(const float (&sums)[S::kColumns / 2], int block, int lower, int first) const {
    const int i = 4 * block + 2 * lower, column = first + block * 8 + lane_ % 4 * 2;
    float2 values = with_bias(sums[i], sums[i + 1], column);
    if constexpr (kGated) {
      const int up = i + kHalfSums;
      const float2 ups = with_bias(sums[up], sums[up + 1], args_.params.out_features / 2 + column);
      values.x = silu_product(round_to<T>(values.x), round_to<T>(ups.x));
      values.y = silu_product(round_to<T>(values.y), round_to<T>(ups.y));
    }
    return bits_of_pair<T>(values.x, values.y);
  }

  // Adds the biases of weight rows `row` and the next one, if they exist.
  __device__ float2 with_bias(float first, float second, int row) const {
    const LinearGpuCall& p = args_.params;
    if (p.bias == nullptr) return make_float2(first, second);
    const int last = p.out_features - 1;
    return make_float2(first + load_as(p.bias_element, p.bias, min(row, last)),
                       second + load_as(p.bias_element, p.bias, min(row + 1, last)));
  }

  const BlocksArgs& args_;
  const int lane_;
  const uint32_t rows_;
  const bool is_gated_;
};

}  // namespace atom::ops::device::blocks
