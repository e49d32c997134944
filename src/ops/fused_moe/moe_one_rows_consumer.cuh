// Inside fused_moe for one token by experts in bfloat16 or MXFP4 on Hopper: the warps that
// multiply.
#pragma once

#include "ops/fused_moe/moe_one_rows_product.cuh"
#include "ops/fused_moe/moe_one_rows_sums.cuh"

namespace atom::ops::device::moe_one_rows {

// A warp that multiplies: its chunks of the rows of its team's stages. In a lane (g, t) =
// (lane / 4, lane % 4) sums 0 and 1 are of a row of the first half with columns 2 t and 2 t + 1,
// 2 and 3 of one of the second half. Of half a tile both are the same row, and what meets even
// columns of the activations, and what odd ones, are different chunks of it.
template <typename W>
class Consumer {
 public:
  __device__ Consumer(const MoeOneRowsArgs& args, uint32_t stages, Shared<W>& shared)
      : args_(args),
        call_(args.call),
        stages_(stages),
        shared_(shared),
        sums_(args, shared),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        g_(static_cast<int>(threadIdx.x) % kWarpSize / 4),
        t_(static_cast<int>(threadIdx.x) % 4) {
    // Every column has x.
    load_factors(
        moe_one::x_of(call_, own_token<W>()), call_.hidden_size, true, Traits::kHalvesGates);
  }

  __device__ void run() {
    num_choices_ = shared_.num_choices;
    sums_.ask_for_biases();
    add_gates_and_ups();
    moe_one::meet_all_blocks(args_.scratch.counters + 2 * own_token<W>());
    load_factors(own_activated<W>(args_) + g_ * call_.intermediate_size,
                 call_.intermediate_size,
                 g_ < num_choices_,
                 false);
    add_downs();
  }

 private:
  using Format = RowFormat<W>;
  using Traits = RowTraits<W>;

  __device__ int team() const { return warp_ / kTeamWarps; }
  __device__ int team_warp() const { return warp_ % kTeamWarps; }

  // The other factor's columns that are this lane's, in pairs as codes are expanded. With
  // `has_pairs` they are of two chunks at once.
  __device__ void load_factors(const void* row, int num_columns, bool exists, bool has_pairs) {
    constexpr int kLaneColumns = Traits::kChunkColumns / kLanes;
    const RowLayout<W> layout(num_columns);
#pragma unroll
    for (int r = 0; r < Traits::kRounds; ++r) {
      const int own = team_warp() + r * kTeamWarps, chunk = has_pairs ? 2 * own + g_ % 2 : own;
      const int first = chunk * Traits::kChunkColumns + t_ * kLaneColumns;
#pragma unroll
      for (int v = 0; v < Format::kXVectors; ++v) {
        const int column = first + v * 8;
        const bool is_there = exists && chunk < layout.chunks && column < num_columns;
        factors_[r][v] =
            is_there ? load_bits_from_l2(static_cast<const BFloat16*>(row) + column) : uint4{};
        if constexpr (Format::kHasExponents) factors_[r][v] = Format::paired(factors_[r][v]);
      }
    }
  }

  __device__ void add_gates_and_ups() {
    const RowLayout<W> layout(call_.hidden_size);
    int slot = 0, base = 0;
    for_gate_tiles(call_, num_choices_, [&](int, int tile) {
      if constexpr (Traits::kHalvesGates) {
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          for_own_stage([&] { add_half(layout, slot, half); });
        }
      } else {
        for_own_stage([&] { add_tile(layout, slot, GateRows(call_, tile)); });
      }
      if (++slot < kSlots) return;
      sums_.finish_gates(base, slot);
      base += slot;
      slot = 0;
    });
    sums_.finish_gates(base, slot);
  }

  // A half of gates or ups. Lanes side by side read the two chunks in different orders, because
  // their rows begin in the same bank.
  __device__ __forceinline__ void add_half(const RowLayout<W>& layout, int slot, int half) {
    const uint32_t row = stage() + g_ * layout.size + t_ * kVectorSize;
    const bool is_odd = g_ % 2 == 1;
    const uint32_t codes[2] = {row + (is_odd ? kChunkSize : 0), row + (is_odd ? 0 : kChunkSize)};
    float sums[4];
    add_rows<2>(codes, {}, layout.chunks / 2, sums);
    if (t_ != 0) return;
    const float sum = is_odd ? sums[1] + sums[2] : sums[0] + sums[3];
    if (call_.activation.is_interleaved) {
      sums_.keep(slot, g_ % 2, half * kHalfRows / 2 + g_ / 2, sum);
    } else {
      sums_.keep(slot, half, g_, sum);
    }
  }

  __device__ __forceinline__ void add_tile(const RowLayout<W>& layout,
                                           int slot,
                                           const GateRows& rows) {
    const bool interleaved = call_.activation.is_interleaved;
    const int row = interleaved ? g_ : layout.row_of(g_);
    const int own[2] = {interleaved ? 2 * g_ : row, interleaved ? 2 * g_ + 1 : kHalfRows + row};
    float sums[4];
    add_rows_of(layout,
                own,
                {layout.exponents_before(rows.first), layout.exponents_before(rows.second)},
                sums);
    if (t_ != 0) return;
    sums_.keep(slot, 0, row, sums[0]);
    sums_.keep(slot, 1, row, sums[2]);
  }

  __device__ void add_downs() {
    const RowLayout<W> layout(call_.intermediate_size);
    const int row = layout.row_of(g_);
    const int pairs = num_pairs(num_choices_), most_units = kSlots / max(pairs, 1);
    int units = 0, base = 0;
    for_units(call_, [&](int unit) {
      const int before = layout.exponents_before(unit * kHalfRows);
      for (int pair = 0; pair < pairs; ++pair) {
        for_own_stage([&] {
          float sums[4];
          add_rows_of(layout, {row, kHalfRows + row}, {before, before}, sums);
          if (t_ != pair) return;
          const int slot = units * pairs + pair, second = 2 * pair + 1;
          sums_.keep(slot, 0, row, sums[0] * shared_.choices[2 * pair].weight);
          sums_.keep(slot,
                     1,
                     row,
                     second < num_choices_ ? sums[3] * shared_.choices[second].weight : 0.0f);
        });
      }
      if (++units < most_units) return;
      sums_.finish_units(base, units);
      base += units;
      units = 0;
    });
    sums_.finish_units(base, units);
  }

  __device__ uint32_t stage() const {
    return stages_ + stage_.index * args_.stage_size;
  }

  // If the next stage is the team's.
  template <typename Add>
  __device__ __forceinline__ void for_own_stage(Add&& add) {
    if (num_stages_passed_ % kTeams == team()) {
      add();
    } else if (args_.num_stages % kTeams != 0) {
      // A stage is each team's by turns, and a barrier's phases are told apart by their parity.
      wait_for(shared_address(&shared_.full[stage_.index]), stage_.parity);
    }
    ++num_stages_passed_;
    stage_.advance(args_.num_stages);
  }

  // Of the rows of a tile that are this lane's, with so many bytes before the exponents of each
  // half.
  __device__ __forceinline__ void add_rows_of(const RowLayout<W>& layout,
                                              const int (&rows)[2],
                                              const int (&before)[2],
                                              float (&sums)[4]) {
    uint32_t codes[2], exponents[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_second = rows[i] >= kHalfRows;
      codes[i] = stage() + rows[i] * layout.size + t_ * kVectorSize;
      exponents[i] = stage() + kTileRows * layout.size +
                     (is_second ? layout.half_exponents + before[1] : before[0]) +
                     rows[i] % kHalfRows * layout.exponents + t_;
    }
    add_rows<1>(codes, exponents, layout.chunks, sums);
  }

  // What the warp's chunks of the current stage give, kStep of them at a time.
  template <int kStep>
  __device__ __forceinline__ void add_rows(const uint32_t (&codes)[2],
                                           const uint32_t (&exponents)[2],
                                           int num_steps,
                                           float (&sums)[4]) {
    float parts[2][4] = {};
    wait_for(shared_address(&shared_.full[stage_.index]), stage_.parity);
    const auto load = [&](int step) {
      RowCodes next;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        next.bits[i] = load_shared(codes[i] + step * kStep * kChunkSize);
        if constexpr (Format::kHasExponents) {
          next.exponents[i] = load_shared_byte(exponents[i] + step * Traits::kExponents);
        }
      }
      return next;
    };
    RowCodes next{};
    if (Traits::kReadsAhead && team_warp() < num_steps) next = load(team_warp());
#pragma unroll
    for (int r = 0; r < Traits::kRounds; ++r) {
      const int step = team_warp() + r * kTeamWarps, after = step + kTeamWarps;
      if (step >= num_steps) break;
      const RowCodes now = Traits::kReadsAhead ? next : load(step);
      if (Traits::kReadsAhead && r + 1 < Traits::kRounds && after < num_steps) next = load(after);
      multiply_codes<W>(now, factors_[r], parts);
    }
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(shared_address(&shared_.empty[stage_.index]));
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = parts[0][i] + parts[1][i];
  }

  const MoeOneRowsArgs& args_;
  const FusedMoeGpuCall& call_;
  const uint32_t stages_;
  Shared<W>& shared_;
  TileSums<W> sums_;
  const int warp_, g_, t_;
  int num_choices_ = 0;
  int num_stages_passed_ = 0;
  StageCursor stage_;
  uint4 factors_[Traits::kRounds][Format::kXVectors];
};

}  // namespace atom::ops::device::moe_one_rows
