// Inside the linear for few rows on Hopper: its shared memory, the work of a block, and the thread
// that copies the weight and x to the stages.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/copy_ahead.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/skinny/launch.h"
#include "ops/linear/skinny/wgmma.cuh"

namespace atom::ops::device {

constexpr int kPanelSize = 128;  // bytes of k
constexpr int kStepSize = 32;    // bytes of k that one instruction multiplies
constexpr int kWarpgroups = 2, kWarpgroupWarps = 4, kWarpgroupSize = kWarpgroupWarps * kWarpSize;
constexpr int kNumConsumers = kWarpgroups * kWarpgroupSize;  // threads; a warp that copies follows
constexpr int kBarrierSize = 8;

// Where things are in shared memory.
class Shared {
 public:
  __device__ Shared(const SkinnyArgs& args, uint8_t* memory)
      : layout_(args.layout),
        memory_(memory),
        base_(shared_address(memory)),
        num_stages_(args.num_stages) {}

  __device__ uint32_t stage(int index) const { return base_ + index * layout_.stage_size; }
  __device__ uint32_t full(int index) const { return barrier(index); }
  __device__ uint32_t empty(int index) const { return barrier(num_stages_ + index); }
  // The other block's sums are there.
  __device__ uint32_t sums_full() const { return barrier(2 * num_stages_); }
  // [parts of k][pairs of rows of x, sums_stride of weight rows]
  __device__ float2* sums(int part) const {
    return reinterpret_cast<float2*>(memory_ + layout_.sums + part * layout_.part_size);
  }
  __device__ int sums_stride() const { return layout_.sums_stride; }
  // [scale, bias; tile rows], of one tile and the next in turn
  __device__ float* row_scales(int buffer) const {
    return reinterpret_cast<float*>(memory_ + layout_.rows + buffer * layout_.rows_size);
  }
  __device__ float* x_scales() const {
    return reinterpret_cast<float*>(memory_ + layout_.x_scales);
  }
  // With groups: [panels of this block, groups_stride() of rows of x]
  __device__ float* group_scales() const {
    return reinterpret_cast<float*>(memory_ + layout_.groups);
  }
  __device__ int groups_stride() const { return layout_.groups_stride; }
  __device__ int stage_size() const { return layout_.stage_size; }

 private:
  __device__ uint32_t barrier(int index) const {
    return base_ + layout_.barriers + index * kBarrierSize;
  }

  const SkinnyLayout& layout_;
  uint8_t* const memory_;
  const uint32_t base_;
  const int num_stages_;
};

// A block's part of the work: chunks of k of some tiles.
struct SkinnyWork {
  int rank, num_splits;
  int first_tile, tile_step, num_tiles;
  int first_chunk, end_chunk;

  __device__ explicit SkinnyWork(const SkinnyArgs& args)
      : rank(cluster_rank()), num_splits(1 << args.log_splits) {
    first_tile = blockIdx.x >> args.log_splits;
    tile_step = gridDim.x >> args.log_splits;
    num_tiles = (args.num_tiles - first_tile + tile_step - 1) / tile_step;
    first_chunk = args.num_chunks * rank >> args.log_splits;
    end_chunk = args.num_chunks * (rank + 1) >> args.log_splits;
  }
  __device__ int num_items() const { return num_tiles * (end_chunk - first_chunk); }
};

// Where a stage has what is multiplied: the rows of a panel lie side by side.
struct StagePlan {
  int half, half_panel;  // bytes from half to half of a tile's rows, and from panel to panel
  int x, x_panel;

  __device__ explicit StagePlan(const SkinnyArgs& args) {
    const bool gated = args.params.epilogue == LinearEpilogue::kSiluAndMul;
    const int half_size = args.half_rows * kPanelSize;
    // As two boxes of several panels each leave it.
    const bool apart = gated && args.box_panels > 1;
    half = apart ? args.num_panels * half_size : half_size;
    half_panel = apart ? half_size : 2 * half_size;
    x = 2 * args.num_panels * half_size;
    x_panel = args.x_rows * kPanelSize;
  }
};

// What is copied to a stage: by one thread.
template <typename T>
class Producer {
 public:
  __device__ Producer(const SkinnyArgs& args, const SkinnyWork& work, const Shared& shared)
      : args_(args),
        work_(work),
        shared_(shared),
        weight_policy_(read_once_policy()),
        x_policy_(keep_policy()),
        num_prefilled_(min(args.num_stages, work.num_items())) {}

  // Before the kernel before has ended.
  __device__ void prefill() const {
    Item item = first_item();
    for (int i = 0; i < num_prefilled_; ++i) {
      arrive_expecting(shared_.full(i), shared_.stage_size());
      copy_weight(item, i);
      advance(item);
    }
    bring_weights(item);
  }

  __device__ void run() const {
    Item item = first_item();
    for (int i = 0; i < num_prefilled_; ++i) {
      copy_x(item, i);
      advance(item);
    }
    StageCursor stage;
    for (int i = num_prefilled_; i < work_.num_items(); ++i) {
      wait_for(shared_.empty(stage.index), stage.parity);
      arrive_expecting(shared_.full(stage.index), shared_.stage_size());
      copy_weight(item, stage.index);
      copy_x(item, stage.index);
      advance(item);
      stage.advance(args_.num_stages);
    }
  }

 private:
  struct Item {
    int tile, chunk;
  };

  // To the second-level cache, from `item` on, while there is nothing else to do.
  __device__ void bring_weights(Item item) const {
    const int count = min(work_.num_items() - num_prefilled_, args_.num_ahead);
    for (int i = 0; i < count; ++i) {
      for_weight_boxes(item, [&](int, int column, int row, int box) {
        prefetch_box(&args_.weight, column, row, box);
      });
      advance(item);
    }
  }

  __device__ Item first_item() const { return {work_.first_tile, work_.first_chunk}; }

  __device__ void advance(Item& item) const {
    if (++item.chunk < work_.end_chunk) return;
    item.chunk = work_.first_chunk;
    item.tile += work_.tile_step;
  }

  // visit(panel, box_panels panels from it on, as coordinates)
  template <typename Visit>
  __device__ void for_boxes(const Item& item, Visit&& visit) const {
    constexpr int kPanelElements = kPanelSize / sizeof(T);
    for (int i = 0; i < args_.num_panels; i += args_.box_panels) {
      const int panel = item.chunk * args_.num_panels + i;
      visit(i, args_.whole_panels ? 0 : panel * kPanelElements, args_.whole_panels ? panel : 0);
    }
  }

  // visit(offset in the stage, coordinates) for a tile's boxes, with SiLU of both halves.
  template <typename Visit>
  __device__ void for_weight_boxes(const Item& item, Visit&& visit) const {
    const StagePlan plan(args_);
    const bool gated = args_.params.epilogue == LinearEpilogue::kSiluAndMul;
    const int row = item.tile * (gated ? 1 : 2) * args_.half_rows;
    for_boxes(item, [&](int panel, int column, int box) {
      const int offset = panel * 2 * args_.half_rows * kPanelSize;
      visit(offset, column, row, box);
      if (gated) visit(offset + plan.half, column, row + args_.half_stride, box);
    });
  }

  __device__ void copy_weight(const Item& item, int stage) const {
    for_weight_boxes(item, [&](int offset, int column, int row, int box) {
      copy_box(shared_.stage(stage) + offset,
               &args_.weight,
               column,
               row,
               box,
               shared_.full(stage),
               weight_policy_);
    });
  }

  __device__ void copy_x(const Item& item, int stage) const {
    const StagePlan plan(args_);
    for_boxes(item, [&](int panel, int column, int box) {
      copy_box(shared_.stage(stage) + plan.x + panel * plan.x_panel,
               &args_.x,
               column,
               0,
               box,
               shared_.full(stage),
               x_policy_);
    });
  }

  const SkinnyArgs& args_;
  const SkinnyWork& work_;
  const Shared& shared_;
  const uint64_t weight_policy_, x_policy_;
  const int num_prefilled_;
};

}  // namespace atom::ops::device
