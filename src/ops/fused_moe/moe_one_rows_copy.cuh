// Inside fused_moe for one token by experts in bfloat16 or MXFP4 on Hopper: the warp that copies.
#pragma once

#include "ops/fused_moe/moe_one_rows_stage.cuh"

namespace atom::ops::device::moe_one_rows {

// By one warp.
template <typename W>
class Copier {
 public:
  __device__ Copier(const MoeOneRowsArgs& args, uint32_t stages, Shared<W>& shared)
      : args_(args),
        stages_(stages),
        shared_(shared),
        policy_(read_once_policy()),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize) {}

  __device__ void run() {
    const FusedMoeGpuCall& call = args_.call;
    const int num_choices = shared_.num_choices;
    const RowLayout<W> gate_up = layout_of_gates<W>(call), down(call.intermediate_size);
    for_gate_tiles(call, num_choices, [&](int choice, int tile) {
      const GateRows rows(call, tile);
      copy(call.gate_up, gate_up, choice, choice, rows.first, rows.second, 2);
    });
    for_units(call, [&](int unit) {
      for (int choice = 0; choice < num_choices; choice += 2) {
        const bool has_second = choice + 1 < num_choices;
        const int second = has_second ? choice + 1 : choice, row = unit * kHalfRows;
        copy(call.down, down, choice, second, row, row, has_second ? 2 : 1);
      }
    });
  }

 private:
  __device__ void copy(const ExpertMatrices& matrices,
                       const RowLayout<W>& layout,
                       int first_choice,
                       int second_choice,
                       int first_row,
                       int second_row,
                       int num_halves) {
    // A lane has a row, and one more of each half its exponents.
    const bool has_row = lane_ < kTileRows;
    const int half = has_row ? lane_ / kHalfRows : lane_ - kTileRows;
    const int64_t expert = shared_.choices[half == 0 ? first_choice : second_choice].expert;
    const int64_t row = half == 0 ? first_row : second_row;
    const auto* const source = static_cast<const uint8_t*>(matrices.data) +
                               expert * matrices.expert_stride +
                               (row + lane_ % kHalfRows) * layout.size;
#pragma unroll
    for (int part = 0; part < RowTraits<W>::kParts; ++part) {
      const uint32_t full = shared_address(&shared_.full[stage_.index]);
      const uint32_t target = stages_ + stage_.index * args_.stage_size;
      wait_for(shared_address(&shared_.empty[stage_.index]), stage_.parity ^ 1);
      const int size = layout.part_size(part);
      if (lane_ == 0) {
        arrive_expecting(full, num_halves * (kHalfRows * size + layout.half_exponents));
      }
      __syncwarp();
      if (half < num_halves) {
        if (has_row) {
          copy_bulk(
              target + lane_ * layout.pitch, source + layout.part_begin(part), size, full, policy_);
        } else if constexpr (RowFormat<W>::kHasExponents) {
          copy_bulk(target + kTileRows * layout.pitch + half * layout.half_exponents,
                    matrices.exponents + expert * matrices.exponent_stride +
                        row * layout.exponents - layout.exponents_before(static_cast<int>(row)),
                    layout.half_exponents,
                    full,
                    policy_);
        }
      }
      stage_.advance(args_.num_stages);
    }
  }

  const MoeOneRowsArgs& args_;
  const uint32_t stages_;
  Shared<W>& shared_;
  const uint64_t policy_;
  const int lane_;
  StageCursor stage_;
};

}  // namespace atom::ops::device::moe_one_rows
