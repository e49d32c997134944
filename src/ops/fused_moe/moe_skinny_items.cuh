// Inside fused_moe for few tokens by experts in FP8 on Hopper: which tiles a block multiplies. All
// blocks take the next one of a list when they come to it, since they differ in speed and a block's
// share is few tiles.
#pragma once

#include "ops/fused_moe/moe_skinny_shared.cuh"

namespace atom::ops::device::moe_skinny {

// Fills the list of groups and experts' first rows, or where choices are counted their first
// choices; by all threads. Returns the groups' number.
template <typename Limits, bool kCountsChoices, int kColumns>
__device__ int make_groups(const Plan<Limits, kCountsChoices>& plan,
                           const Shared<kColumns>& shared) {
  TokenGroup* const groups = shared.groups();
  const PlanSizes all = plan.for_experts([&](int expert, int count, PlanSizes before) {
    const int first_choice = kCountsChoices ? before.choices : before.rows;
    shared.first_rows()[expert] = static_cast<uint16_t>(first_choice);
    TokenGroup* group = groups + before.groups;
    for (int i = 0; i < count; i += kColumns) {
      *group++ = {static_cast<uint16_t>(expert),
                  static_cast<uint16_t>(before.rows + i),
                  static_cast<uint16_t>(min(kColumns, count - i)),
                  static_cast<uint16_t>(first_choice + i)};
    }
  });
  __syncthreads();
  return all.groups;
}

// Fills the list of choices when groups are there, by all threads, and ends what there is of the
// plan.
template <typename Limits, bool kCountsChoices, int kColumns>
__device__ void list_choices(const MoeSkinnyArgs& args,
                             const Plan<Limits, kCountsChoices>& plan,
                             const Shared<kColumns>& shared) {
  plan.for_choices([&](int choice, int expert) {
    const int place =
        shared.first_rows()[expert] + plan.tokens_before(expert, choice / args.call.top_k);
    shared.choices()[place] = static_cast<uint16_t>(choice);
  });
  // Copies come there next.
  fence_before_copies();
  __syncwarp();
  if (threadIdx.x % kWarpSize == 0) arrive(shared.plan_read());
}

// By a warp. First those of the first matrix, group by group: so what is waited for is under way.
// The last ones are halves, so that blocks end at about the same time.
template <int kColumns, bool kHasCodes>
class ItemTaker {
 public:
  __device__ ItemTaker(const MoeSkinnyArgs& args, const Shared<kColumns>& shared, int num_groups)
      : args_(args),
        shared_(shared),
        num_first_(num_groups * args.matrices[0].num_tiles),
        num_whole_(num_groups * args.matrices[1].num_tiles) {
    if (args.matrices[1].num_rows % (2 * kHalfRows) != 0) return;
    num_split_ = min(num_whole_, kSplitTiles * static_cast<int>(gridDim.x));
    num_whole_ -= num_split_;
  }

  __device__ void run() {
    const int num_all = num_first_ + num_whole_ + 2 * num_split_;
    for (int place = blockIdx.x; place < num_all; place = next_place()) put(place);
    put_end();
  }

 private:
  static constexpr int kSplitTiles = 3;  // of a block, about

  static __device__ int lane() { return threadIdx.x % kWarpSize; }

  __device__ int next_place() const {
    int taken = 0;
    if (lane() == 0) taken = atomicAdd(args_.scratch.counters + kItemsTaken, 1);
    return __shfl_sync(0xffffffffu, taken, 0) + static_cast<int>(gridDim.x);
  }

  // Into the next slot.
  __device__ void put(int place) {
    Item& item = next_slot();
    if (place < num_first_) {
      const MatrixArgs& matrix = args_.matrices[0];
      const int group = place / matrix.num_tiles;
      put(item, 0, group, (place - group * matrix.num_tiles) * matrix.tile_stride, 2);
    } else {
      const MatrixArgs& matrix = args_.matrices[1];
      const int local = place - num_first_, half = local - num_whole_;
      const int tile = half < 0 ? local : num_whole_ + half / 2;
      const int group = tile / matrix.num_tiles;
      const int row = (tile - group * matrix.num_tiles) * matrix.tile_stride;
      if (half < 0) {
        put(item, 1, group, row, min(2, (matrix.num_rows - row) / kHalfRows));
      } else {
        put(item, 1, group, row + half % 2 * kHalfRows, 1);
      }
    }
    publish();
  }

  __device__ void put_end() {
    Item& item = next_slot();
    if (lane() == 0) item.matrix = kNoMatrix;
    make_known();
    publish();
  }

  __device__ void make_known() const {
    if (lane() == 0) arrive(shared_.item_known(slot_.index));
  }

  __device__ void publish() {
    __syncwarp();
    if (lane() == 0) arrive(shared_.item_full(slot_.index));
    slot_.advance(kNumItems);
  }

  __device__ Item& next_slot() const {
    wait_for(shared_.item_empty(slot_.index), slot_.parity ^ 1);
    return shared_.item(slot_.index);
  }

  __device__ void put(Item& item, int index, int group, int row, int num_halves) const {
    if (lane() == 0) {
      item.matrix = index;
      item.group = group;
      item.row = row;
      item.num_halves = num_halves;
    }
    // Where blocks quantize x, copies that begin earlier would delay it.
    if constexpr (kHasCodes) make_known();
    const MatrixArgs& matrix = args_.matrices[index];
    const int expert = shared_.groups()[group].expert;
    const int second_row = num_halves == 2 ? row + matrix.half_stride : row;
    for (int panel = lane(); panel < matrix.num_panels; panel += kWarpSize) {
      item.scales[panel] = matrix.has_blocks
                               ? make_float2(scale_at(matrix.own, expert, row, panel),
                                             scale_at(matrix.own, expert, second_row, panel))
                               : make_float2(1, 1);
    }
    if constexpr (!kHasCodes) make_known();
  }

  const MoeSkinnyArgs& args_;
  const Shared<kColumns>& shared_;
  const int num_first_;
  int num_whole_, num_split_ = 0;  // tiles of the second matrix
  StageCursor slot_;
};

}  // namespace atom::ops::device::moe_skinny
