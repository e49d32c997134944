// Inside the linear with k divided on Hopper: the products and sums of a warpgroup, which has half
// of a tile's columns.
#pragma once

#include "ops/linear/split_k/stage.cuh"

namespace atom::ops::device::split_k {

// All consumers copy the weight's scales of a tile, before the kernel before has ended. Columns
// that do not exist have others' scales.
template <typename S>
__device__ void copy_weight_scales(const SplitKArgs& args,
                                   const Work<S>& work,
                                   const Shared& shared) {
  const LinearGpuCall& p = args.params;
  const uint32_t target = shared_address(shared.weight_scales());
  for (int i = threadIdx.x; i < work.count * S::kBlocks; i += kNumConsumers) {
    const int group = i / S::kBlocks, block = i % S::kBlocks;
    const int feature = min(work.tile * S::kColumns + block * kBlock, p.out_features - 1);
    const int row = feature / p.scale_rows;
    copy_4(target + i * int{sizeof(float)},
           p.weight_scale + row * args.num_groups + work.begin + group);
  }
  arrive_after_copies(shared.scales_full());
}

template <typename S>
class Sums {
 public:
  __device__ Sums(const SplitKArgs& args, const Work<S>& work, const Shared& shared)
      : args_(args),
        work_(work),
        shared_(shared),
        num_refilled_(count_refilled(args, work.count)),
        warpgroup_(threadIdx.x / kWarpgroupSize),
        row_(threadIdx.x / kWarpSize % kWarpgroupWarps * kWarpRows + threadIdx.x % kWarpSize / 4) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums_[i] = 0;
  }

  // The matrix units have the next group's products to do while one's are scaled and added.
  __device__ __forceinline__ void multiply() {
    float even[kSums], odd[kSums];
    begin_next(even);
    wait_for(shared_.scales_full(), 0);
    int group = 1;
#pragma unroll 1
    for (; group + 1 < work_.count; group += 2) {
      const int before = last_, between = begin_next(odd);
      add<1>(even, group - 1, before);
      begin_next(even);
      add<1>(odd, group, between);
    }
    if (group < work_.count) {
      const int before = last_;
      begin_next(odd);
      add<1>(even, group - 1, before);
      add<0>(odd, group, last_);
    } else {
      add<0>(even, group - 1, last_);
    }
  }

  // A thread's sums of eight columns: two of the upper row and two of the lower one.
  __device__ float4 of_block(int block) const {
    return make_float4(
        sums_[4 * block], sums_[4 * block + 1], sums_[4 * block + 2], sums_[4 * block + 3]);
  }

 private:
  static constexpr int kSums = S::kWidth / 2;
  static constexpr int kSteps = 4, kStepSize = kPanelSize / kSteps;

  // Returns the group's stage of x.
  __device__ __forceinline__ int begin_next(float (&products)[kSums]) {
    const int half = warpgroup_ * S::kWidth * kPanelSize;
    const uint64_t a = matrix_at(shared_.x(x_.index));
    const uint64_t b = matrix_at(shared_.weight(weight_.index, S::kWeightStageSize) + half);
    wait_for(shared_.weight_full(weight_.index), weight_.parity);
    wait_for(shared_.x_full(x_.index), x_.parity);
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      blocks::multiply_float8<S::kWidth>(products, a + offset, b + offset, i > 0);
    }
    commit_products();
    last_ = x_.index;
    x_.advance(args_.layout.num_x_stages);
    weight_.advance(args_.layout.num_weight_stages);
    return last_;
  }

  // Adds what the `i`th group gives, while the products of kPending groups go on.
  template <int kPending>
  __device__ __forceinline__ void add(float (&products)[kSums], int i, int stage) {
    const float* const x =
        shared_.x_scales() + row_ * shared_.x_scale_stride() + work_.begin % kScaleUnit + i;
    const float* const weight =
        shared_.weight_scales() + i * S::kBlocks + warpgroup_ * S::kWidthBlocks;
    const float upper = x[0], lower = x[8 * shared_.x_scale_stride()];
    float scales[S::kWidthBlocks];
#pragma unroll
    for (int block = 0; block < S::kWidthBlocks; ++block) scales[block] = weight[block];
    wait_for_products<kPending>();
    pin(products);
    if (i < num_refilled_ && threadIdx.x % kWarpSize == 0) arrive(shared_.done(stage));
#pragma unroll
    for (int block = 0; block < S::kWidthBlocks; ++block) {
      const float of_upper = upper * scales[block], of_lower = lower * scales[block];
#pragma unroll
      for (int j = 4 * block; j < 4 * block + 2; ++j) {
        sums_[j] = fmaf(products[j], of_upper, sums_[j]);
        sums_[j + 2] = fmaf(products[j + 2], of_lower, sums_[j + 2]);
      }
    }
  }

  const SplitKArgs& args_;
  const Work<S>& work_;
  const Shared& shared_;
  const int num_refilled_, warpgroup_, row_;
  StageCursor x_, weight_;
  int last_ = 0;  // stage whose products were begun last
  float sums_[kSums];
};

}  // namespace atom::ops::device::split_k
