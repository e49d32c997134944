// Inside fused_moe for one token by experts in bfloat16 or MXFP4 on Hopper: the warps that
// multiply.
#pragma once

#include "ops/fused_moe/moe_one_rows_product.cuh"
#include "ops/fused_moe/moe_one_rows_sums.cuh"

namespace atom::ops::device::moe_one_rows {

// A warp that multiplies: its chunks of the rows of its team's stages. In a lane (g, t) =
// (lane / 4, lane % 4) sums 0 and 1 are of row g of the first half with columns 2 t and 2 t + 1,
// 2 and 3 of the same row of the second half.
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
    load_factors(call_.x, call_.hidden_size, true);
  }

  __device__ void run() {
    num_choices_ = shared_.num_choices;
    add_gates_and_ups();
    moe_one::meet_all_blocks(args_.scratch.counters);
    const auto* const activated = static_cast<const BFloat16*>(args_.scratch.activated);
    load_factors(
        activated + g_ * call_.intermediate_size, call_.intermediate_size, g_ < num_choices_);
    add_downs();
  }

 private:
  using Format = RowFormat<W>;
  using Traits = RowTraits<W>;
  static constexpr int kParts = Traits::kParts;

  __device__ int team() const { return warp_ / kTeamWarps; }
  __device__ int team_warp() const { return warp_ % kTeamWarps; }

  // The other factor's columns that are this lane's, in pairs as codes are expanded.
  __device__ void load_factors(const void* row, int num_columns, bool exists) {
    constexpr int kLaneColumns = Traits::kChunkColumns / kLanes;
    const RowLayout<W> layout(num_columns);
    const int first_chunk = kParts == 1 ? 0 : team() * layout.chunks;
#pragma unroll
    for (int r = 0; r < Traits::kRounds; ++r) {
      const int chunk = team_warp() + r * kTeamWarps;
      const int first = (first_chunk + chunk) * Traits::kChunkColumns + t_ * kLaneColumns;
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
    const RowLayout<W> layout = layout_of_gates<W>(call_);
    const bool interleaved = call_.activation.is_interleaved;
    const int first = interleaved ? 2 * g_ : g_, second = interleaved ? first + 1 : kHalfRows + g_;
    int slot = 0, base = 0;
    for_gate_tiles(call_, num_choices_, [&](int, int tile) {
      for_own_part([&] {
        const GateRows rows(call_, tile);
        const int before[2] = {layout.exponents_before(rows.first),
                               layout.exponents_before(rows.second)};
        float sums[4];
        add_part(layout, first, second, before, sums);
        if (t_ == 0) sums_.keep(slot, g_, sums[0], sums[2]);
      });
      if (++slot < kSlots) return;
      sums_.finish_gates(base, slot);
      base += slot;
      slot = 0;
    });
    sums_.finish_gates(base, slot);
  }

  __device__ void add_downs() {
    const RowLayout<W> layout(call_.intermediate_size);
    const int pairs = num_pairs(num_choices_), most_units = kSlots / max(pairs, 1);
    int units = 0, base = 0;
    for_units(call_, [&](int unit) {
      const int of_both = layout.exponents_before(unit * kHalfRows);
      const int before[2] = {of_both, of_both};
      for (int pair = 0; pair < pairs; ++pair) {
        for_own_part([&] {
          float sums[4];
          add_part(layout, g_, kHalfRows + g_, before, sums);
          const bool has_second = 2 * pair + 1 < num_choices_;
          if (t_ == pair) {
            sums_.keep(units * pairs + pair,
                       g_,
                       sums[0] * shared_.choices[2 * pair].weight,
                       has_second ? sums[3] * shared_.choices[2 * pair + 1].weight : 0.0f);
          }
        });
      }
      if (++units < most_units) return;
      sums_.finish_units(base, units);
      base += units;
      units = 0;
    });
    sums_.finish_units(base, units);
  }

  // Of the stages of a tile those that are the team's: teams have them by turns.
  template <typename Add>
  __device__ __forceinline__ void for_own_part(Add&& add) {
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      if (stage_.index % kTeams == team()) add();
      stage_.advance(args_.num_stages);
    }
  }

  // What the warp's chunks of the current stage give, whose rows are `first` and `second` of it,
  // with so many bytes before the exponents of each half.
  __device__ __forceinline__ void add_part(
      const RowLayout<W>& layout, int first, int second, const int (&before)[2], float (&sums)[4]) {
    const uint32_t rows = stages_ + stage_.index * args_.stage_size;
    const uint32_t codes[2] = {rows + first * layout.pitch + t_ * kVectorSize,
                               rows + second * layout.pitch + t_ * kVectorSize};
    const auto exponents_of = [&](int row) -> uint32_t {
      const bool is_second = row >= kHalfRows;
      const int of_half = is_second ? layout.half_exponents + before[1] : before[0];
      return rows + kTileRows * layout.pitch + of_half + row % kHalfRows * layout.exponents + t_;
    };
    const uint32_t of_row[2] = {exponents_of(first), exponents_of(second)};
    float parts[2][4] = {};
    wait_for(shared_address(&shared_.full[stage_.index]), stage_.parity);
    const auto load = [&](int chunk) {
      RowCodes next;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        next.bits[i] = load_shared(codes[i] + chunk * kChunkSize);
        if constexpr (Format::kHasExponents) {
          next.exponents[i] = load_shared_byte(of_row[i] + chunk * Traits::kExponents);
        }
      }
      return next;
    };
    RowCodes next{};
    if (Traits::kReadsAhead && team_warp() < layout.chunks) next = load(team_warp());
#pragma unroll
    for (int r = 0; r < Traits::kRounds; ++r) {
      const int chunk = team_warp() + r * kTeamWarps, after = chunk + kTeamWarps;
      if (chunk >= layout.chunks) break;
      const RowCodes now = Traits::kReadsAhead ? next : load(chunk);
      if (Traits::kReadsAhead && r + 1 < Traits::kRounds && after < layout.chunks) {
        next = load(after);
      }
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
  StageCursor stage_;
  uint4 factors_[Traits::kRounds][Format::kXVectors];
};

}  // namespace atom::ops::device::moe_one_rows
