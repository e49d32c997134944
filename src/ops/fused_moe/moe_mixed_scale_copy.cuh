// Inside fused_moe by MXFP4 and FP8: the warp that copies tokens' scales to the stages. Tiles begin
// at any row, and the copy engine takes only what begins at multiples of 16 bytes.
#pragma once

#include "ops/fused_moe/moe_mixed_stage.cuh"

namespace atom::ops::device::mixed {

template <bool kGated>
class ScaleCopier {
 public:
  __device__ ScaleCopier(const MoeMixedArgs& args, const Shared<kGated>& shared)
      : args_(args),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        stride_(moe_mixed_scale_stride(int64_t{args.call.num_tokens} * args.call.top_k)) {}

  // Copies of as many chunks are under way as there are stages.
  __device__ void run() {
    for_tiles(args_, [&](const Tile& tile) {
      for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
        wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
        copy(tile, chunk);
        stage_.advance(Shared<kGated>::kStages);
      }
    });
  }

 private:
  static constexpr int kOfLane = (kTokens + kWarpSize - 1) / kWarpSize;
  static_assert(kScalesSize >= kOfLane * kWarpSize * int{sizeof(float)});

  // Of rows and chunks that do not exist those of others.
  __device__ void copy(const Tile& tile, int chunk) const {
    const float* const group = args_.scratch.scales + min(chunk, args_.num_groups - 1) * stride_;
    const uint32_t target = shared_.scales(stage_.index) + lane_ * 4;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int row = tile.first_row + i * kWarpSize + lane_;
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(target + i * kWarpSize * 4),
                   "l"(group + min(row, tile.end_row - 1))
                   : "memory");
    }
    // Each lane arrives when its copies have.
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_.full(stage_.index))
        : "memory");
  }

  const MoeMixedArgs& args_;
  const Shared<kGated>& shared_;
  const int lane_;
  const int64_t stride_;
  StageCursor stage_;
};

}  // namespace atom::ops::device::mixed
