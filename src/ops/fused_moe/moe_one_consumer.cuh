// Inside fused_moe for one token by experts in FP8 on Hopper: the warps that multiply.
#pragma once

#include "ops/fused_moe/moe_one_codes.cuh"
#include "ops/linear/skinny/wgmma.cuh"

namespace atom::ops::device::moe_one {

__device__ inline float load_shared_float(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// In a register: to find it anew takes as long as a stage's other instructions.
__device__ inline uint32_t kept_address(const void* pointer) {
  uint32_t address = shared_address(pointer);
  asm volatile("" : "+r"(address));
  return address;
}

// A warp's part of the stages of a pass: its warpgroup has eight panels of each, and of those the
// warp's two are its rows of the products. In a lane (g, t) = (lane / 4, lane % 4) products 0 and 1
// are of row g of the first one with columns 2 t and 2 t + 1, 2 and 3 of row g of the second one,
// so that lanes whose t is the warp's number have those of the panels' own columns, 0 and 3.
class StagePart {
 public:
  static constexpr int kDepth = 32;  // columns of a product

  __device__ StagePart(const MoeOneArgs& args, const Shared& shared, bool is_first_matrix) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int group = warp / kGroupWarps;
    own_ = warp % kGroupWarps * 2;
    before_ = (is_first_matrix ? group % 2 : group) * kPanels;
    panels_ = kept_address(shared.stages[0] + group * kPanels * kPanelSize);
    codes_ = kept_address(shared.codes[before_]);
    code_scales_ = kept_address(shared.scales + before_ + own_);
    const bool has_row_scales = (is_first_matrix ? args.gate_up : args.down).has_row_scales;
    const int panel = group * kPanels + own_;
    const int place = has_row_scales ? panel * kTileRows + lane / 4 : panel;
    scales_ = kept_address(shared.matrix_scales[0] + place);
    next_scale_ = (has_row_scales ? kTileRows : 1) * int{sizeof(float)};
  }

  // What a stage adds to the lane's row. Products of each 32 columns are sums of their own, so that
  // none waits for another.
  struct Products {
    float sums[kPanel / kDepth][4];
    float scales[2];  // of both panels
    int count;        // of the stage's panels from the warpgroup's first on
  };

  // Between begin_products() and commit_products().
  __device__ void begin(Products& products, int stage, int code_row) const {
    const uint64_t a = matrix_at(panels_ + stage * kStageSize);
    const uint64_t b = matrix_at(codes_ + code_row * kPanel);
#pragma unroll
    for (int i = 0; i < kPanel / kDepth; ++i) {
      const uint64_t offset = matrix_offset(i * kDepth);
      multiply<Float8, kTileRows>(products.sums[i], a + offset, b + offset, false);
    }
  }

  // While they are under way; of a stage with so many panels.
  __device__ void load_scales(Products& products, int stage, int code_row, int num_panels) const {
    const uint32_t scales = scales_ + stage * kStageScalesSize;
    const uint32_t code_scales = code_scales_ + code_row * int{sizeof(float)};
    products.count = num_panels - before_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      products.scales[i] = load_shared_float(scales + i * next_scale_) *
                           load_shared_float(code_scales + i * int{sizeof(float)});
    }
  }

  // When they have ended.
  __device__ float sum(Products& products) const {
#pragma unroll
    for (float(&sums)[4] : products.sums) pin(sums);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto& each = products.sums;
      const float all = each[0][3 * i] + each[1][3 * i] + (each[2][3 * i] + each[3][3 * i]);
      if (own_ + i < products.count) sum = fmaf(all, products.scales[i], sum);
    }
    return sum;
  }

 private:
  static constexpr int kGroupWarps = 4, kPanels = kStagePanels / (kWarps / kGroupWarps);
  static constexpr int kStageSize = sizeof(Shared::stages[0]);
  static constexpr int kStageScalesSize = sizeof(Shared::matrix_scales[0]);
  static_assert(kPanels == kTileRows);

  int own_, before_;
  uint32_t panels_, codes_, scales_, code_scales_;
  int next_scale_;
};

class Consumer {
 public:
  __device__ Consumer(const MoeOneArgs& args, Shared& shared)
      : args_(args),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        full_(kept_address(shared.full)),
        empty_(kept_address(shared.empty)),
        codes_(args, shared) {}

  __device__ void run() {
    begin_together();
    wait_for_choices();
    // One loop for both: code that runs for so short is slow to load.
#pragma unroll 1
    for (int i = 0; i < kNumPasses; ++i) {
      const Pass pass = static_cast<Pass>(i);
      const Share share(args_, shared_.num_choices, pass);
      const StagePart part(args_, shared_, share.is_first_matrix);
      const int tile_stages = share.tile_stages();
      codes_.store(pass);
      __syncwarp();
      if (pass == Pass::kSecondMatrix && lane_ == 0) arrive(shared_address(&shared_.read));
      synchronize_first<kNumConsumers>();
      multiply_tiles(pass, share, part, tile_stages);
    }
  }

 private:
  // A stage that is multiplied, of a tile of which so many panels are left.
  struct Next {
    int tile, left, code_row;

    __device__ void advance(const Share& share) {
      left -= share.stage_panels;
      code_row += share.stage_code_rows;
      if (left > 0) return;
      left = share.num_panels;
      code_row = 0;
      tile += static_cast<int>(gridDim.x);
    }
  };

  __device__ void multiply_tiles(Pass pass,
                                 const Share& share,
                                 const StagePart& part,
                                 int tile_stages) {
    const int most_stages = kSlots / tile_stages * tile_stages;
    Next next = {share.first_tile, share.num_panels, 0};
#pragma unroll 1
    while (next.tile < share.num_tiles) {
      const int first_tile = next.tile;
      int slot = 0;
#pragma unroll 1
      do {
        slot += multiply_stages(share, part, slot, most_stages - slot, next);
      } while (slot < most_stages && next.tile < share.num_tiles);
      synchronize_first<kNumConsumers>();
      finish(pass, first_tile, slot, tile_stages);
      if (next.tile >= share.num_tiles) return;
      synchronize_first<kNumConsumers>();
    }
  }

  // The next one or two, so that latencies of one are hidden behind the other; returns how many.
  __device__ int multiply_stages(
      const Share& share, const StagePart& part, int slot, int most, Next& next) {
    const StageOfTile first = wait_for_stage(share, next);
    const bool has_second = most > 1 && next.tile < share.num_tiles;
    // Else the first one once more, for nothing.
    const StageOfTile second = has_second ? wait_for_stage(share, next) : first;
    StagePart::Products products[2];
    begin_products();
    part.begin(products[0], first.index, first.code_row);
    part.begin(products[1], second.index, second.code_row);
    commit_products();
    part.load_scales(products[0], first.index, first.code_row, first.num_panels);
    part.load_scales(products[1], second.index, second.code_row, second.num_panels);
    wait_for_products<0>();
    keep_sum(slot, first.index, part.sum(products[0]));
    const float sum = part.sum(products[1]);
    if (has_second) keep_sum(slot + 1, second.index, sum);
    return has_second ? 2 : 1;
  }

  struct StageOfTile {
    int index, code_row, num_panels;
  };

  __device__ StageOfTile wait_for_stage(const Share& share, Next& next) {
    const StageOfTile stage = {cursor_.index, next.code_row, min(next.left, share.stage_panels)};
    wait_for(full_ + cursor_.index * kBarrierSize, cursor_.parity);
    cursor_.advance(kNumStages);
    next.advance(share);
    return stage;
  }

  // What the warp has of the lane's row; nothing of the stage is needed any more.
  __device__ void keep_sum(int slot, int stage, float sum) const {
    if (lane_ % 4 == warp_ % 4) shared_.sums[slot][warp_][lane_ / 4] = sum;
    __syncwarp();
    if (lane_ == 0) arrive(empty_ + stage * kBarrierSize);
  }

  // Adds up what the warps have of tiles, a tile by a warp.
  __device__ void finish(Pass pass, int first_tile, int num_slots, int tile_stages) const {
    constexpr int kParts = kWarpSize / kTileRows, kPartWarps = kWarps / kParts;
    const int slot = warp_ * tile_stages;
    if (slot >= num_slots) return;
    const int row = lane_ % kTileRows, first = lane_ / kTileRows * kPartWarps;
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < tile_stages; ++i) {
#pragma unroll
      for (int w = 0; w < kPartWarps; ++w) sum += shared_.sums[slot + i][first + w][row];
    }
    sum += exchange(sum, kTileRows);
    const float other = exchange(sum, 2 * kTileRows);
    if (lane_ >= kTileRows) return;
    const int place = (first_tile + warp_ * static_cast<int>(gridDim.x)) * kTileRows + row;
    if (pass == Pass::kSecondMatrix)
      return store_result(args_.call, own_token(), place, sum + other);
    publish_activated(args_, place, activated(args_.call.activation, sum, other));
  }

  static constexpr int kBarrierSize = sizeof(uint64_t);

  const MoeOneArgs& args_;
  Shared& shared_;
  const int warp_, lane_;
  const uint32_t full_, empty_;
  const CodeWriter codes_;
  StageCursor cursor_;
};

}  // namespace atom::ops::device::moe_one
