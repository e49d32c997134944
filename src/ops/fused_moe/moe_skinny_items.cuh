// Inside fused_moe for few tokens by experts in FP8 on Hopper: which tiles a block multiplies. All
// blocks take the next one of a list when they come to it, since they differ in speed and a block's
// share is few tiles.
#pragma once

#include "ops/fused_moe/moe_skinny_shared.cuh"

namespace atom::ops::device::moe_skinny {

// Fills the list of groups and experts' first rows, by all threads; returns the groups' number.
template <typename Limits, int kColumns>
__device__ int make_groups(const Plan<Limits>& plan, const Shared<kColumns>& shared) {
  TokenGroup* const groups = shared.groups();
  const PlanSizes all = plan.for_experts([&](int expert, int count, PlanSizes before) {
    shared.first_rows()[expert] = static_cast<uint16_t>(before.rows);
    TokenGroup* group = groups + before.groups;
    for (int i = 0; i < count; i += kColumns) {
      *group++ = {static_cast<uint16_t>(expert),
                  static_cast<uint16_t>(before.rows + i),
                  static_cast<uint16_t>(min(kColumns, count - i))};
    }
  });
  __syncthreads();
  return all.groups;
}

// By a warp. First those of the first matrix, group by group: so what is waited for is under way.
template <int kColumns>
class ItemTaker {
 public:
  __device__ ItemTaker(const MoeSkinnyArgs& args, const Shared<kColumns>& shared, int num_groups)
      : args_(args),
        shared_(shared),
        num_first_(num_groups * args.matrices[0].num_tiles),
        num_all_(num_first_ + num_groups * args.matrices[1].num_tiles) {}

  __device__ void run() {
    put(blockIdx.x);
    int place = blockIdx.x;
    while (place < num_all_) {
      int taken = 0;
      if (lane() == 0) taken = atomicAdd(args_.scratch.counters + kItemsTaken, 1);
      place = __shfl_sync(0xffffffffu, taken, 0) + static_cast<int>(gridDim.x);
      put(place);
    }
  }

 private:
  static __device__ int lane() { return threadIdx.x % kWarpSize; }

  // Into the next slot.
  __device__ void put(int place) {
    wait_for(shared_.item_empty(slot_.index), slot_.parity ^ 1);
    Item& item = shared_.item(slot_.index);
    const bool exists = place < num_all_, is_first = place < num_first_;
    if (exists) {
      const MatrixArgs& matrix = args_.matrices[is_first ? 0 : 1];
      const int local = is_first ? place : place - num_first_, group = local / matrix.num_tiles;
      const int tile = local - group * matrix.num_tiles;
      put_scales(matrix, shared_.groups()[group].expert, tile, item);
      if (lane() == 0) {
        item.group = group;
        item.tile = tile;
      }
    }
    if (lane() == 0) item.matrix = !exists ? kNoMatrix : is_first ? 0 : 1;
    __syncwarp();
    if (lane() == 0) arrive(shared_.item_full(slot_.index));
    slot_.advance(kNumItems);
  }

  __device__ void put_scales(const MatrixArgs& matrix, int expert, int tile, Item& item) const {
    const int row = tile * matrix.tile_stride;
    // The last tile's second half may not exist.
    const int second_row = min(row + matrix.half_stride, matrix.num_rows - 1);
    for (int panel = lane(); panel < matrix.num_panels; panel += kWarpSize) {
      item.scales[panel] = matrix.has_blocks
                               ? make_float2(scale_at(matrix.own, expert, row, panel),
                                             scale_at(matrix.own, expert, second_row, panel))
                               : make_float2(1, 1);
    }
  }

  const MoeSkinnyArgs& args_;
  const Shared<kColumns>& shared_;
  const int num_first_, num_all_;
  StageCursor slot_;
};

}  // namespace atom::ops::device::moe_skinny
