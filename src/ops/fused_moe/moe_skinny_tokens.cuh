// Inside fused_moe for few tokens by experts in FP8 on Hopper, where x comes in codes: the warp
// that copies tokens' rows to the stages from where they are.
#pragma once

#include "ops/device/copy_ahead.cuh"
#include "ops/fused_moe/moe_skinny_copy.cuh"

namespace atom::ops::device::moe_skinny {

template <int kColumns>
class TokenCopier {
 public:
  __device__ TokenCopier(const MoeSkinnyArgs& args, const Shared<kColumns>& shared)
      : args_(args), shared_(shared), lane_(threadIdx.x % kWarpSize) {}

  __device__ void run() {
    wait_for(shared_.plan_read(), 0);
    for_items<false>(shared_, lane_ == 0, [&](const Item& item, const StageCursor&) {
      if (item.matrix == 0) {
        copy_tokens(shared_.groups()[item.group]);
      } else {
        copy_activated(item);
      }
      __syncwarp();
    });
  }

 private:
  static constexpr int kAtOnce = kWarpSize / kChunkPanels;  // rows

  __device__ void copy_tokens(const TokenGroup& group) {
    const MatrixArgs& matrix = args_.matrices[0];
    const int num_rows = group.num_rows;
    // Of rows that do not exist the first one's.
    const int choice = shared_.choices()[group.first_choice + (lane_ < num_rows ? lane_ : 0)];
    const int token = choice / args_.call.top_k;
    for (int chunk = 0; chunk * matrix.chunk_panels < matrix.num_panels; ++chunk) {
      const uint32_t full = shared_.x_full(stage_.index);
      const int count = panels_of(matrix, chunk);
      wait_for(shared_.x_empty(stage_.index), stage_.parity ^ 1);
      if (lane_ == 0) arrive_expecting(full, count * num_rows * kPanelSize);
      __syncwarp();
      const int part = lane_ % kChunkPanels, panel = chunk * matrix.chunk_panels + part;
#pragma unroll
      for (int first = 0; first < kColumns; first += kAtOnce) {
        const int row = first + lane_ / kChunkPanels;
        const int own = __shfl_sync(0xffffffffu, token, row);
        if (row < num_rows && part < count) copy_panel(row, part, own, panel);
      }
      arrive_after_copies(full);
      stage_.advance(Shared<kColumns>::kNumXStages);
    }
  }

  // Of a token's row.
  __device__ void copy_panel(int row, int part, int token, int panel) const {
    using Memory = Shared<kColumns>;
    const MatrixArgs& matrix = args_.matrices[0];
    const int stage = stage_.index;
    copy_4(shared_.x_scales(stage) + part * Memory::kXPanelScales + row * int{sizeof(float)},
           matrix.x_scales + int64_t{token} * matrix.num_panels + panel);
    copy_box(shared_.x(stage) + part * Memory::kXPanelBytes + row * kPanelSize,
             &matrix.x,
             panel * kPanelSize,
             token,
             shared_.x_full(stage),
             policy_);
  }

  __device__ void copy_activated(const Item& item) {
    const MatrixArgs& matrix = args_.matrices[1];
    const int row = shared_.groups()[item.group].first_row;
    if (lane_ == 0) {
      wait_before_copies(args_, kTilesReady + item.group, args_.matrices[0].num_tiles);
    }
    for (int chunk = 0; chunk * matrix.chunk_panels < matrix.num_panels; ++chunk) {
      wait_for(shared_.x_empty(stage_.index), stage_.parity ^ 1);
      if (lane_ == 0) copy_rows(args_, shared_, matrix, row, chunk, stage_.index, policy_);
      arrive(shared_.x_full(stage_.index));
      stage_.advance(Shared<kColumns>::kNumXStages);
    }
  }

  const MoeSkinnyArgs& args_;
  const Shared<kColumns>& shared_;
  const int lane_;
  const uint64_t policy_ = keep_policy();
  StageCursor stage_;
};

}  // namespace atom::ops::device::moe_skinny
