// Inside the linear with k divided on Hopper: a tile's sums come to the blocks that finish them.
#pragma once

#include "ops/linear/linear_epilogue.cuh"
#include "ops/linear/split_k/sums.cuh"

namespace atom::ops::device::split_k {

template <typename S>
class Joiner {
 public:
  __device__ Joiner(const SplitKArgs& args, const Work<S>& work, const Shared& shared)
      : args_(args),
        work_(work),
        shared_(shared),
        items_(args),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize) {}

  __device__ __forceinline__ void run(const Sums<S>& sums) const {
    const int row_block = warp_ % kWarpgroupWarps;
    const int first_block = warp_ / kWarpgroupWarps * S::kWidthBlocks;
    if constexpr (S::kParts > 1) {
      if (row_block < items_.num_row_blocks) send(sums, row_block, first_block);
      finish();
    } else {
#pragma unroll
      for (int i = 0; i < S::kWidthBlocks; ++i) {
        store(sums.of_block(i), row_block, first_block + i);
      }
    }
  }

 private:
  // To whoever finishes them.
  __device__ __forceinline__ void send(const Sums<S>& sums, int row_block, int first_block) const {
#pragma unroll
    for (int i = 0; i < S::kWidthBlocks; ++i) {
      const int id = items_.id(row_block, first_block + i), owner = id % S::kParts;
      send_in_cluster(address_in(owner, place(id / S::kParts, work_.part)),
                      sums.of_block(i),
                      address_in(owner, shared_.sums_full()));
    }
  }

  __device__ __forceinline__ void finish() const {
    const int count = items_.count_of(work_.part);
    wait_for(shared_.sums_full(), 0);
#pragma unroll 1
    for (int index = warp_; index < count; index += kConsumerWarps) {
      const int id = index * S::kParts + work_.part;
      store(sum(place(index, 0)), id % items_.num_row_blocks, id / items_.num_row_blocks);
    }
  }

  // Lanes lie side by side.
  __device__ uint32_t place(int index, int part) const {
    return shared_.sums() + (index * S::kParts + part) * kItemSize + lane_ * kVector;
  }

  // In the order of k, whoever finishes.
  static __device__ float4 sum(uint32_t address) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) {
      const uint4 bits = load_shared(address + part * kItemSize);
      sum.x += __uint_as_float(bits.x);
      sum.y += __uint_as_float(bits.y);
      sum.z += __uint_as_float(bits.z);
      sum.w += __uint_as_float(bits.w);
    }
    return sum;
  }

  __device__ __forceinline__ void store(float4 sums, int row_block, int block) const {
    const LinearGpuCall& p = args_.params;
    const bool is_half = p.y_element == Element::kFloat16;
    const int row = row_block * kWarpRows + lane_ / 4, place = block * kBlock + lane_ % 4 * 2;
    const int column = work_.tile * S::kColumns + place;
    if (column >= p.out_features) return;
    const float2 bias = *reinterpret_cast<const float2*>(shared_.biases() + place);
    uint16_t* const y = static_cast<uint16_t*>(p.y) + row * p.y_stride + column;
    const uint32_t upper = outputs(sums.x + bias.x, sums.y + bias.y, is_half);
    const uint32_t lower = outputs(sums.z + bias.x, sums.w + bias.y, is_half);
    if (row < p.num_rows) *reinterpret_cast<uint32_t*>(y) = upper;
    if (row + 8 < p.num_rows) *reinterpret_cast<uint32_t*>(y + 8 * p.y_stride) = lower;
  }

  // Two adjacent ones. Both types, since code that branches for them comes late to a block that
  // runs it once.
  static __device__ uint32_t outputs(float first, float second, bool is_half) {
    const uint32_t half = bits_of_pair<Half>(first, second);
    const uint32_t bfloat16 = bits_of_pair<BFloat16>(first, second);
    return is_half ? half : bfloat16;
  }

  const SplitKArgs& args_;
  const Work<S>& work_;
  const Shared& shared_;
  const Items<S> items_;
  const int warp_, lane_;
};

}  // namespace atom::ops::device::split_k
