// Inside fused_moe by terms in FP8: choices in the order of experts, and their rows of x in terms.
#include "ops/fused_moe/moe_arrange_launch.cuh"
#include "ops/fused_moe/moe_terms_launch_sm90.h"
#include "ops/fused_moe/moe_terms_numbers.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kPieceColumns = 32, kPieceVectors = kPieceColumns * 2 / kVectorSize;

// 32 numbers of a row.
struct Piece {
  uint4 vectors[kPieceVectors];

  __device__ void load(const BFloat16* x) {
#pragma unroll
    for (int v = 0; v < kPieceVectors; ++v) vectors[v] = load_bits_from_l2(x + v * 8);
  }

  // The bits of the largest magnitude.
  __device__ uint32_t largest() const {
    uint32_t largest = 0;
#pragma unroll
    for (const uint4& bits : vectors) {
      for (const uint32_t word : {bits.x, bits.y, bits.z, bits.w}) {
        largest = max(largest, max(word << 16 & 0x7fff0000, word & 0x7fff0000));
      }
    }
    return largest;
  }

  // Terms in the order in which products take them.
  __device__ void store(uint8_t* high_terms, uint8_t* low_terms, float scale) const {
    uint32_t high[8], low[8];  // of even columns, and then of odd ones
#pragma unroll
    for (int v = 0; v < kPieceVectors; ++v) {
      const uint32_t words[4] = {vectors[v].x, vectors[v].y, vectors[v].z, vectors[v].w};
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const auto value = [&](int w) {
          return scale * __uint_as_float(odd == 0 ? words[w] << 16 : words[w] & 0xffff0000);
        };
        const terms::Terms first = terms::terms_of(value(0), value(1));
        const terms::Terms second = terms::terms_of(value(2), value(3));
        high[odd * 4 + v] = first.high | second.high << 16;
        low[odd * 4 + v] = first.low | second.low << 16;
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = i * 4;
      store_bits(high_terms + i * kVectorSize,
                 {high[first], high[first + 1], high[first + 2], high[first + 3]});
      store_bits(low_terms + i * kVectorSize,
                 {low[first], low[first + 1], low[first + 2], low[first + 3]});
    }
  }
};

// A row of x, by a block, whose threads have a piece each at a time and hold the first one.
class Row {
 public:
  __device__ Row(const FusedMoeGpuCall& call, int choice)
      : x_(static_cast<const BFloat16*>(call.x) + int64_t{choice / call.top_k} * call.x_stride),
        size_(call.hidden_size) {
    if (first() < size_) piece_.load(x_ + first());
  }

  __device__ void store(const FusedMoeGpuCall& call, const MoeTermsScratch& scratch, int row) {
    const terms::TermScale scale = terms::scale_of_largest_bits(largest_of_all());
    auto* high = static_cast<uint8_t*>(scratch.x) + int64_t{row} * size_;
    auto* low = high + int64_t{call.num_tokens} * call.top_k * size_;
    for (int at = first(); at < size_; at += kStep) {
      if (at != first() || size_ > kStep) piece_.load(x_ + at);
      piece_.store(high + at, low + at, scale.to);
    }
    if (threadIdx.x == 0) scratch.x_scales[row] = scale.from;
  }

 private:
  static constexpr int kStep = kArrangeThreads * kPieceColumns;

  static __device__ int first() { return threadIdx.x * kPieceColumns; }

  __device__ uint32_t largest_of_all() {
    __shared__ uint32_t of_warps[kArrangeThreads / kWarpSize];
    uint32_t largest = first() < size_ ? piece_.largest() : 0;
    for (int at = first() + kStep; at < size_; at += kStep) {
      piece_.load(x_ + at);
      largest = max(largest, piece_.largest());
    }
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = largest;
    __syncthreads();
    for (const uint32_t some : of_warps) largest = max(largest, some);
    return largest;
  }

  const BFloat16* const x_;
  const int size_;
  Piece piece_;
};

__global__ void __launch_bounds__(kArrangeThreads)
    arrange_terms(const __grid_constant__ FusedMoeGpuCall call,
                  MoeTermsScratch scratch,
                  int tile_rows) {
  const int choice = blockIdx.x;
  allow_next_grid();
  wait_for_previous_grid();
  if (choice == call.num_tokens * call.top_k) return count_rows(call, scratch.shared, tile_rows);
  // Asked for before the row is known.
  Row x(call, choice);
  const int row = find_row(call, scratch.shared, choice);
  if (row >= 0) x.store(call, scratch, row);
}

// Of choices that are sorted.
__global__ void __launch_bounds__(kArrangeThreads)
    split_rows(const __grid_constant__ FusedMoeGpuCall call, MoeTermsScratch scratch) {
  const int row = blockIdx.x;
  allow_next_grid();
  wait_for_previous_grid();
  if (row >= gpu_load_from_l2(scratch.shared.row_begins + call.num_experts)) return;
  Row(call, gpu_load_from_l2(scratch.shared.choices + row)).store(call, scratch, row);
}

}  // namespace

gpuError_t arrange_moe_terms(const FusedMoeGpuCall& call,
                             const MoeTermsScratch& scratch,
                             int tile_rows,
                             gpuStream_t stream) {
  return arrange_choices(call, scratch, tile_rows, stream, arrange_terms, split_rows);
}

}  // namespace atom::ops
