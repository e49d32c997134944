// Inside fused_moe for few tokens by experts in FP8 on Hopper: the threads that copy matrices and
// rows of x to the stages.
#pragma once

#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_skinny_shared.cuh"

namespace atom::ops::device::moe_skinny {

// Stages under way at once keep the memory busy; with more, whatever else a block asks for waits
// behind them.
constexpr int kStagesUnderWay = 2;

// By one thread.
template <int kColumns>
class MatrixCopier {
 public:
  __device__ MatrixCopier(const MoeSkinnyArgs& args, const Shared<kColumns>& shared)
      : args_(args), shared_(shared) {}

  // Allows the next grid when it comes to the second matrix: a launch takes a few microseconds.
  __device__ void run() {
    bool has_allowed = false;
    for_items<false>(shared_, true, [&](const Item& item, const StageCursor&) {
      if (item.matrix == 1 && !has_allowed) {
        allow_next_grid();
        has_allowed = true;
      }
      const MatrixArgs& matrix = args_.matrices[item.matrix];
      const int row = shared_.groups()[item.group].expert * matrix.num_rows + item.row;
      for (int panel = 0; panel < matrix.num_panels; panel += matrix.chunk_panels) {
        for (int i = 0; i < 2 * item.num_halves; ++i) {
          const int half_row = i / 2 * matrix.half_stride + i % 2 * kStageRows;
          wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
          if (num_begun_ >= kStagesUnderWay) {
            wait_for(shared_.full(landed_.index), landed_.parity);
            landed_.advance(kNumStages);
          }
          // The plan lies in the last stage.
          if (++num_begun_ == kNumStages) wait_for(shared_.plan_read(), 0);
          const uint32_t full = shared_.full(stage_.index);
          arrive_expecting(full, matrix.chunk_panels * kPanelBytes);
          copy_box(shared_.matrix(stage_.index),
                   &matrix.matrices,
                   0,
                   row + half_row,
                   panel,
                   full,
                   policy_);
          stage_.advance(kNumStages);
        }
      }
    });
  }

 private:
  static constexpr int kNumStages = Shared<kColumns>::kNumStages;
  static_assert(kStagesUnderWay < kNumStages);

  const MoeSkinnyArgs& args_;
  const Shared<kColumns>& shared_;
  const uint64_t policy_ = read_once_policy();
  StageCursor stage_, landed_;
  int num_begun_ = 0;
};

// Returns when blocks have counted so far.
__device__ inline void wait_for_count(const MoeSkinnyArgs& args, int counter, int count) {
  const int32_t* const address = args.scratch.counters + counter;
  int32_t now = 0;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(address) : "memory");
  } while (now < count);
}

// The same before copies of what their threads stored.
__device__ inline void wait_before_copies(const MoeSkinnyArgs& args, int counter, int count) {
  wait_for_count(args, counter, count);
  fence_global_copies();
}

// By another thread, as what follows: a chunk of rows that blocks made.
template <int kColumns>
__device__ void copy_rows(const MoeSkinnyArgs& args,
                          const Shared<kColumns>& shared,
                          const MatrixArgs& matrix,
                          int row,
                          int chunk,
                          int stage,
                          uint64_t policy) {
  using Memory = Shared<kColumns>;
  const uint32_t full = shared.x_full(stage);
  const int count = panels_of(matrix, chunk);
  arrive_expecting(full, count * (Memory::kXPanelBytes + Memory::kXPanelScales));
  for (int i = 0; i < count; ++i) {
    const int panel = chunk * matrix.chunk_panels + i;
    copy_box(shared.x(stage) + i * Memory::kXPanelBytes,
             &matrix.x,
             panel * kPanelSize,
             row,
             full,
             policy);
    copy_bulk(shared.x_scales(stage) + i * Memory::kXPanelScales,
              matrix.x_scales + int64_t{panel} * args.scratch.num_rows + row,
              Memory::kXPanelScales,
              full,
              policy);
  }
}

template <int kColumns>
__device__ void copy_x(const MoeSkinnyArgs& args, const Shared<kColumns>& shared) {
  const uint64_t policy = keep_policy();
  StageCursor stage;
  wait_before_copies(args, kRowsReady, args.call.num_tokens);
  for_items<false>(shared, true, [&](const Item& item, const StageCursor&) {
    const MatrixArgs& matrix = args.matrices[item.matrix];
    const int row = shared.groups()[item.group].first_row;
    if (item.matrix == 1) {
      wait_before_copies(args, kTilesReady + item.group, args.matrices[0].num_tiles);
    }
    for (int chunk = 0; chunk * matrix.chunk_panels < matrix.num_panels; ++chunk) {
      wait_for(shared.x_empty(stage.index), stage.parity ^ 1);
      copy_rows(args, shared, matrix, row, chunk, stage.index, policy);
      stage.advance(Shared<kColumns>::kNumXStages);
    }
  });
}

// By a third one: says of groups' tiles that they are activated, which would keep those who
// multiply for as long as memory takes to answer.
template <int kColumns>
__device__ void tell_of_tiles(const MoeSkinnyArgs& args, const Shared<kColumns>& shared) {
  for_items<false>(shared, true, [&](const Item& item, const StageCursor& slot) {
    if (item.matrix != 0) return;
    wait_for(shared.item_stored(slot.index), slot.parity);
    __threadfence();
    atomicAdd(args.scratch.counters + kTilesReady + item.group, 1);
  });
}

}  // namespace atom::ops::device::moe_skinny
