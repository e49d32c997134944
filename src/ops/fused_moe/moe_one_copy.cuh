// Inside fused_moe for one token by experts in FP8 on Hopper: the warps that copy.
#pragma once

#include "ops/device/copy_ahead.cuh"
#include "ops/fused_moe/moe_one_stage.cuh"

namespace atom::ops::device::moe_one {

// When so many stages of the first matrix are under way alone, those of the second one follow: some
// blocks shall not ask the memory for them while others wait for gates.
constexpr int kStagesUnderWay = 2;

// In front of the passes one stage is gone through on nothing, while the kernel before still runs:
// code that runs for so short is slow to load, and copies wait for it.
constexpr int kRehearsal = -1;

__device__ inline Pass pass_of(int i) {
  return i <= 0 ? Pass::kFirstMatrix : Pass::kSecondMatrix;
}

// The stages of a pass, or with `rehearses` one that is not copied.
template <typename Copy>
__device__ void copy_stages(const MoeOneArgs& args,
                            const Shared& shared,
                            Pass pass,
                            bool rehearses,
                            StageCursor& cursor,
                            Copy&& copy) {
#pragma unroll 1
  for (Stages stages(args, rehearses ? args.call.top_k : shared.num_choices, pass);
       !stages.is_done();
       stages.advance()) {
    if (!rehearses) wait_for(shared_address(&shared.empty[cursor.index]), cursor.parity ^ 1);
    copy(stages, cursor.index);
    if (rehearses) return;
    cursor.advance(kNumStages);
  }
}

class MatrixCopier {
 public:
  __device__ MatrixCopier(const MoeOneArgs& args, Shared& shared) : args_(args), shared_(shared) {}

  __device__ void run() {
    StageCursor cursor;
    int num_begun = 0;
#pragma unroll 1
    for (int i = kRehearsal; i < kNumPasses; ++i) {
      const bool rehearses = i < 0;
      if (i == 0) begin();
      if (pass_of(i) == Pass::kSecondMatrix) wait_for_copy(num_begun - 1 - kStagesUnderWay);
      copy_stages(
          args_, shared_, pass_of(i), rehearses, cursor, [&](const Stages& stages, int stage) {
            copy(stages, stage, rehearses);
            if (!rehearses) ++num_begun;
          });
    }
  }

 private:
  // The i-th of all, if there is such a one.
  __device__ void wait_for_copy(int i) const {
    if (i < 0) return;
    wait_for(shared_address(&shared_.full[i % kNumStages]), i / kNumStages % 2);
  }

  __device__ void begin() {
    begin_together();
    const int num_choices = find_choices(args_.call, own_token(), shared_.choices);
    if (lane_ == 0) shared_.num_choices = num_choices;
    __syncwarp();
    tell_choices();
  }

  __device__ void copy(const Stages& stages, int stage, bool rehearses) const {
    const bool is_first = stages.is_first_matrix();
    const MatrixArgs& matrix = is_first ? args_.gate_up : args_.down;
    const uint32_t full = shared_address(&shared_.full[stage]);
    const int num_boxes = is_first ? 2 : min(args_.choices_at_once, num_left(stages));
    if (lane_ == 0 && !rehearses) arrive_expecting(full, num_boxes * matrix.box_size);
    __syncwarp();
    if (lane_ >= num_boxes || rehearses) return;
    const int expert = shared_.choices[stages.choice() + (is_first ? 0 : lane_)].expert;
    const int row = stages.row() + (is_first ? lane_ * args_.call.intermediate_size : 0);
    copy_box(shared_address(shared_.stages[stage]) +
                 lane_ * (is_first ? kHalfPanels * kPanelSize : matrix.box_size),
             &matrix.map,
             0,
             expert * matrix.num_rows + row,
             stages.column(),
             full,
             policy_);
  }

  __device__ int num_left(const Stages& stages) const {
    return shared_.num_choices - stages.choice();
  }

  const MoeOneArgs& args_;
  Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % kWarpSize;
  const uint64_t policy_ = read_once_policy();
};

// Each lane has those of a panel of the stage.
class ScaleCopier {
 public:
  __device__ ScaleCopier(const MoeOneArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        down_part_(lane_ / args.down.num_panels),
        down_panel_(lane_ - down_part_ * args.down.num_panels) {}

  __device__ void run() {
    StageCursor cursor;
#pragma unroll 1
    for (int i = kRehearsal; i < kNumPasses; ++i) {
      const bool rehearses = i < 0;
      if (i == 0) {
        begin_together();
        wait_for_choices();
      }
      copy_stages(
          args_, shared_, pass_of(i), rehearses, cursor, [&](const Stages& stages, int stage) {
            copy(stages, stage, rehearses);
          });
    }
  }

 private:
  __device__ void copy(const Stages& stages, int stage, bool rehearses) const {
    const bool is_first = stages.is_first_matrix();
    const MatrixArgs& matrix = is_first ? args_.gate_up : args_.down;
    const uint32_t full = shared_address(&shared_.full[stage]);
    const int own = is_first ? lane_ % kHalfPanels : lane_;
    const bool exists = !rehearses && own < stages.num_panels();
    const int count = matrix.has_row_scales ? kTileRows : 1;
    float* const target = shared_.matrix_scales[stage] + lane_ * count;
    if (exists && matrix.scales == nullptr) {
#pragma unroll 1
      for (int i = 0; i < count; ++i) target[i] = 1.0f;
    } else if (exists) {
      const int expert = shared_.choices[stages.choice() + (is_first ? 0 : down_part_)].expert;
      const bool is_up = is_first && lane_ >= kHalfPanels;
      const int row = stages.row() + (is_up ? args_.call.intermediate_size : 0);
      const int panel = is_first ? stages.column() + own : down_panel_;
      const float* const source = matrix.scales + expert * matrix.scale_stride +
                                  (row >> matrix.scale_shift) * matrix.scales_across +
                                  (matrix.scales_across > 1 ? panel : 0);
#pragma unroll 1
      for (int i = 0; i < count; ++i) copy_4(shared_address(target + i), source + i);
    }
    if (rehearses) return;
    if (matrix.scales == nullptr) {
      arrive(full);
    } else {
      arrive_after_copies(full);
    }
  }

  const MoeOneArgs& args_;
  Shared& shared_;
  const int lane_, down_part_, down_panel_;
};

}  // namespace atom::ops::device::moe_one
