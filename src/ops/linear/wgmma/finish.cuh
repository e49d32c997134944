// Inside the linear for many rows on Hopper: what becomes of a tile's sums.
#pragma once

#include "ops/linear/wgmma/stage.cuh"
#include "ops/silu_and_mul/silu_and_mul_device.cuh"

namespace atom::ops::device::wgmma {

template <typename T>
__device__ inline float2 floats_of(uint32_t pair) {
  if constexpr (std::is_same_v<T, Half>) {
    __half2 halves;
    memcpy(&halves, &pair, sizeof pair);
    return __half22float2(halves);
  } else {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  }
}

// A warp's 16 rows of x by the columns of the tile. take() keeps the sums in y's type, and
// finish_slice() of all slices in turn stores them, which the products of the next tile hide.
template <typename T>
class Finisher {
 public:
  static constexpr int kSlices = 8;  // first those of eight rows, then those of the other ones

  __device__ Finisher(const WgmmaArgs& args, const Shared& shared)
      : p_(args.params),
        is_gated_(p_.epilogue == LinearEpilogue::kSiluAndMul),
        lane_(threadIdx.x % kWarpSize),
        rows_(shared.rows(threadIdx.x / kWarpSize)) {}

  // `row`: the warp's first.
  __device__ void take(const float (&sums)[kWgmmaTileColumns / 2], int row, int column_tile) {
    row_ = row;
    column_tile_ = column_tile;
    has_tile_ = true;
    if (p_.bias != nullptr) return take_with_bias(sums);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) pairs_[i] = bits_of_pair<T>(sums[2 * i], sums[2 * i + 1]);
  }

  template <int kSlice>
  __device__ void finish_slice() {
    if (!has_tile_) return;
    if (is_gated_) {
      finish<kSlice, true>();
    } else {
      finish<kSlice, false>();
    }
  }

  __device__ void finish_all() {
    finish_slices(std::make_integer_sequence<int, kSlices>());
  }

 private:
  // Of a thread: of every eight columns two in its row of the first eight rows, then two in that of
  // the others.
  static constexpr int kPairs = kWgmmaTileColumns / 4;
  static constexpr int kHalfColumns = kWgmmaTileColumns / 2;

  template <int... kEach>
  __device__ void finish_slices(std::integer_sequence<int, kEach...>) {
    (finish_slice<kEach>(), ...);
  }

  __device__ void take_with_bias(const float (&sums)[kWgmmaTileColumns / 2]) {
#pragma unroll
    for (int block = 0; block < kWgmmaTileColumns / 8; ++block) {
      const float2 bias = bias_at(weight_row(block * 8) + lane_ % 4 * 2);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = block * 2 + half;
        pairs_[i] = bits_of_pair<T>(sums[2 * i] + bias.x, sums[2 * i + 1] + bias.y);
      }
    }
  }

  // The weight row of a column of the tile; another one for a column that does not exist.
  __device__ int weight_row(int column) const {
    const int width = is_gated_ ? p_.out_features / 2 : p_.out_features;
    const bool is_up = is_gated_ && column >= kHalfColumns;
    const int first = column_tile_ * (is_gated_ ? kHalfColumns : kWgmmaTileColumns);
    const int feature = min(first + (is_up ? column - kHalfColumns : column), width - 8);
    return is_up ? width + feature : feature;
  }

  __device__ float2 bias_at(int feature) const {
    if (p_.bias_element == Element::kFloat32) {
      return *reinterpret_cast<const float2*>(static_cast<const float*>(p_.bias) + feature);
    }
    uint32_t pair;
    memcpy(&pair, static_cast<const T*>(p_.bias) + feature, sizeof pair);
    return floats_of<T>(pair);
  }

  static __device__ uint32_t silu_products(uint32_t gates, uint32_t ups) {
    const float2 gate = floats_of<T>(gates), up = floats_of<T>(ups);
    return bits_of_pair<T>(silu_product(gate.x, up.x), silu_product(gate.y, up.y));
  }

  // A quarter of the columns of eight rows goes to shared memory; with the last one the rows to y.
  template <int kSlice, bool kGated>
  __device__ void finish() {
    constexpr int kHalf = kSlice / 4, kQuarter = kSlice % 4;
    constexpr int kOutputs = kGated ? kHalfColumns : kWgmmaTileColumns;
    constexpr int kFirst = kQuarter * kOutputs / 4, kAtOnce = 32;  // columns
    const uint32_t target =
        shared_address(rows_) + lane_ % 8 * kRowStride + lane_ / 8 * 8 * int{sizeof(T)};
#pragma unroll
    for (int column = kFirst; column < kFirst + kOutputs / 4; column += kAtOnce) {
      uint32_t matrices[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int pair = (column / 8 + i) * 2 + kHalf;
        matrices[i] =
            kGated ? silu_products(pairs_[pair], pairs_[pair + kPairs / 2]) : pairs_[pair];
      }
      store_matrices(target + column * int{sizeof(T)}, matrices);
    }
    if (kQuarter < 3) return;
    __syncwarp();
    store_rows<kOutputs>(row_ + kHalf * kRowsAtOnce);
    __syncwarp();
  }

  template <int kOutputs>
  __device__ void store_rows(int first_row) const {
    constexpr int kPieces = kOutputs / 8;  // of a row, 16 bytes each
    const int width = is_gated_ ? p_.out_features / 2 : p_.out_features;
    const int first_feature = column_tile_ * kOutputs;
#pragma unroll
    for (int i = 0; i < kPieces * kRowsAtOnce; i += kWarpSize) {
      const int piece = (i + lane_) % kPieces, local = (i + lane_) / kPieces;
      const int feature = first_feature + piece * 8, row = first_row + local;
      if (row >= p_.num_rows || feature >= width) continue;
      store_bits(static_cast<T*>(p_.y) + row * p_.y_stride + feature,
                 load_bits(rows_ + local * kRowStride + piece * 16));
    }
  }

  const LinearGpuCall& p_;
  const bool is_gated_;
  const int lane_;
  uint8_t* const rows_;
  int row_ = 0, column_tile_ = 0;
  bool has_tile_ = false;
  uint32_t pairs_[kPairs];
};

}  // namespace atom::ops::device::wgmma
