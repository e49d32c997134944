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
    const RowLayout<W> gate_up(call.hidden_size), down(call.intermediate_size);
    for_gate_tiles(call, num_choices, [&](int choice, int tile) {
      const GateRows rows(call, tile);
      if constexpr (RowTraits<W>::kHalvesGates) {
        copy(call.gate_up, gate_up, choice, choice, rows.first, rows.first, 1);
        copy(call.gate_up, gate_up, choice, choice, rows.second, rows.second, 1);
      } else {
        copy(call.gate_up, gate_up, choice, choice, rows.first, rows.second, 2);
      }
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
    // A lane has a half, and another one its exponents.
    const int half = lane_ % 2;
    const int64_t expert = shared_.choices[half == 0 ? first_choice : second_choice].expert;
    const int64_t row = half == 0 ? first_row : second_row;
    const uint32_t full = shared_address(&shared_.full[stage_.index]);
    const uint32_t target = stages_ + stage_.index * args_.stage_size;
    const int half_size = kHalfRows * layout.size;
    wait_for(shared_address(&shared_.empty[stage_.index]), stage_.parity ^ 1);
    if (lane_ == 0) arrive_expecting(full, num_halves * (half_size + layout.half_exponents));
    __syncwarp();
    if (half < num_halves && lane_ < 2) {
      copy_bulk(target + half * half_size,
                static_cast<const uint8_t*>(matrices.data) + expert * matrices.expert_stride +
                    row * layout.size,
                half_size,
                full,
                policy_);
    } else if (RowFormat<W>::kHasExponents && half < num_halves && lane_ < 4) {
      copy_bulk(target + 2 * half_size + half * layout.half_exponents,
                matrices.exponents + expert * matrices.exponent_stride + row * layout.exponents -
                    layout.exponents_before(static_cast<int>(row)),
                layout.half_exponents,
                full,
                policy_);
    }
    stage_.advance(args_.num_stages);
  }

  const MoeOneRowsArgs& args_;
  const uint32_t stages_;
  Shared<W>& shared_;
  const uint64_t policy_;
  const int lane_;
  StageCursor stage_;
};

}  // namespace atom::ops::device::moe_one_rows
