// Inside the linear with k divided on Hopper: its shared memory, which groups of k a block has, and
// the thread that copies x and the weight.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/copy_ahead.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/blocks/product.cuh"
#include "ops/linear/split_k/launch.h"

namespace atom::ops::device::split_k {

constexpr int kPanelSize = 128;  // bytes of k, which are a group
constexpr int kWarpgroups = 2, kWarpgroupWarps = 4, kWarpgroupSize = kWarpgroupWarps * kWarpSize;
constexpr int kConsumerWarps = kWarpgroups * kWarpgroupWarps;
constexpr int kNumConsumers = kConsumerWarps * kWarpSize;  // threads; a warp that copies follows
constexpr int kWarpRows = 16;                              // of x
constexpr int kBlock = 8;                                  // columns that are finished together
constexpr int kScaleUnit = 4;  // of groups, at whose multiples copies of scales begin
constexpr int kBarrierSize = 8, kVector = 16;
constexpr int kItemSize = kWarpRows * kBlock * int{sizeof(float)};  // sums that a warp finishes

// kColumns: of a tile, a half for each warpgroup. kParts: of k, each by a block of the cluster.
template <int kColumnsOf, int kPartsOf>
struct Shape {
  static constexpr int kColumns = kColumnsOf, kBlocks = kColumns / kBlock;
  static constexpr int kWidth = kColumns / kWarpgroups, kWidthBlocks = kWidth / kBlock;
  static constexpr int kParts = kPartsOf;
  static constexpr int kWeightStageSize = kColumns * kPanelSize;
  static_assert(kWidth % kBlock == 0);
};

// Where things are in shared memory.
class Shared {
 public:
  __device__ Shared(const SplitKArgs& args, uint8_t* memory)
      : layout_(args.layout),
        memory_(memory),
        base_(shared_address(memory)),
        x_stage_size_(args.x_rows * kPanelSize) {}

  __device__ uint32_t x(int stage) const { return base_ + stage * x_stage_size_; }
  __device__ uint32_t weight(int stage, int stage_size) const {
    return base_ + layout_.weight + stage * stage_size;
  }
  __device__ uint32_t sums() const { return base_ + layout_.sums; }
  // [x_rows, x_scale_stride() of groups]
  __device__ const float* x_scales() const {
    return reinterpret_cast<const float*>(memory_ + layout_.x_scales);
  }
  __device__ int x_scale_stride() const { return layout_.x_scale_stride; }
  // [groups, blocks of columns]
  __device__ float* weight_scales() const {
    return reinterpret_cast<float*>(memory_ + layout_.weight_scales);
  }
  // Of the tile's columns, zeros where there are none.
  __device__ float* biases() const { return reinterpret_cast<float*>(memory_ + layout_.biases); }
  __device__ uint32_t scales_full() const { return barrier(0); }
  __device__ uint32_t sums_full() const { return barrier(1); }
  __device__ uint32_t x_full(int stage) const { return barrier(2 + stage); }
  // Both operands of a group have been read, by the stage of x.
  __device__ uint32_t done(int stage) const { return barrier(2 + layout_.num_x_stages + stage); }
  __device__ uint32_t weight_full(int stage) const {
    return barrier(2 + 2 * layout_.num_x_stages + stage);
  }
  __device__ int x_stage_size() const { return x_stage_size_; }

 private:
  __device__ uint32_t barrier(int index) const {
    return base_ + layout_.barriers + index * kBarrierSize;
  }

  const SplitKLayout& layout_;
  uint8_t* const memory_;
  const uint32_t base_;
  const int x_stage_size_;
};

// A block's part of k of its tile.
template <typename S>
struct Work {
  int tile, part = 0;
  int begin, count;  // groups

  __device__ explicit Work(const SplitKArgs& args) : tile(blockIdx.x / S::kParts) {
    if constexpr (S::kParts > 1) part = cluster_rank();
    begin = args.num_groups * part / S::kParts;
    count = args.num_groups * (part + 1) / S::kParts - begin;
  }
};

// Groups after whose products a stage is filled again.
__device__ inline int count_refilled(const SplitKArgs& args, int count) {
  return count - min(args.layout.num_x_stages, args.layout.num_weight_stages);
}

// What of a tile a block of the cluster finishes: items of 16 rows and 8 columns, of all in turn.
template <typename S>
struct Items {
  int num_row_blocks;

  __device__ explicit Items(const SplitKArgs& args)
      : num_row_blocks((args.params.num_rows + kWarpRows - 1) / kWarpRows) {}
  __device__ int count_of(int part) const {
    return (num_row_blocks * S::kBlocks - part + S::kParts - 1) / S::kParts;
  }
  __device__ int id(int row_block, int block) const { return block * num_row_blocks + row_block; }
};

// By one thread.
template <typename S>
class Producer {
 public:
  __device__ Producer(const SplitKArgs& args, const Work<S>& work, const Shared& shared)
      : args_(args), work_(work), shared_(shared), policy_(read_once_policy()) {}

  // Before the kernel before has ended. What does not fit the ring comes to the second-level cache.
  __device__ void prefill() const {
    const int count = min(args_.layout.num_weight_stages, work_.count);
    for (int i = 0; i < count; ++i) copy_weight(i, i);
    for (int i = count; i < work_.count; ++i) {
      prefetch_box(&args_.weight, column(i), work_.tile * S::kColumns);
    }
  }

  __device__ void run() const {
    const int num_x = args_.layout.num_x_stages, num_weight = args_.layout.num_weight_stages;
    const uint64_t policy = keep_policy();
    copy_x_scales(policy);
    for (int i = 0; i < min(num_x, work_.count); ++i) copy_x(i, i, policy);
    StageCursor done, weight;
    for (int i = 0; i < count_refilled(args_, work_.count); ++i) {
      wait_for(shared_.done(done.index), done.parity);
      if (i + num_x < work_.count) copy_x(i + num_x, done.index, policy);
      if (i + num_weight < work_.count) copy_weight(i + num_weight, weight.index);
      done.advance(num_x);
      weight.advance(num_weight);
    }
  }

 private:
  __device__ int column(int i) const { return (work_.begin + i) * kPanelSize; }

  // First, since they would come behind x.
  __device__ void copy_x_scales(uint64_t policy) const {
    const int size = args_.x_rows * shared_.x_scale_stride() * int{sizeof(float)};
    arrive_expecting(shared_.scales_full(), size);
    copy_box(shared_address(shared_.x_scales()),
             &args_.x_scales,
             work_.begin / kScaleUnit * kScaleUnit,
             0,
             shared_.scales_full(),
             policy);
  }

  __device__ void copy_x(int i, int stage, uint64_t policy) const {
    const uint32_t full = shared_.x_full(stage);
    arrive_expecting(full, shared_.x_stage_size());
    copy_box(shared_.x(stage), &args_.x, column(i), 0, full, policy);
  }
  __device__ void copy_weight(int i, int stage) const {
    const uint32_t full = shared_.weight_full(stage);
    arrive_expecting(full, S::kWeightStageSize);
    copy_box(shared_.weight(stage, S::kWeightStageSize),
             &args_.weight,
             column(i),
             work_.tile * S::kColumns,
             full,
             policy_);
  }

  const SplitKArgs& args_;
  const Work<S>& work_;
  const Shared& shared_;
  const uint64_t policy_;
};

}  // namespace atom::ops::device::split_k
