// Inside fused_moe by wide tiles of matrices in MXFP4 on Hopper: the warpgroup that fills stages. A
// thread asks for a tile's codes some chunks ahead and for its tokens, a warp has their scales, and
// all of them expand codes, two rows of a matrix each.
#pragma once

#include "ops/device/bulk_copy.cuh"
#include "ops/fused_moe/moe_wide_float4_copy.cuh"
#include "ops/fused_moe/moe_wide_float8_sums.cuh"

namespace atom::ops::device::wide8 {

template <bool kGated>
class Expander {
 public:
  __device__ Expander(const MoeWideFloat8Args& args, const Shared<true>& shared)
      : args_(args),
        shared_(shared),
        thread_(threadIdx.x % kWarpgroupSize),
        warp_(thread_ / kWarpSize),
        lane_(thread_ % kWarpSize),
        rows_{{thread_, args.call.activation.is_interleaved},
              {thread_ + kWarpgroupSize, args.call.activation.is_interleaved}},
        row_exponents_(args.num_columns / kExponentColumns),
        x_policy_(keep_policy()),
        scales_(args) {}

  __device__ void run() {
    constexpr int kBarrier = 6;
    if (thread_ < kCodeTables) make_table(shared_, thread_);
    asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kWarpgroupSize) : "memory");
    CodeCopier<kGated> codes(args_, shared_);
    for (int i = 0; warp_ == 0 && i < kCodeStages - 1; ++i) codes.copy();
    for_tiles(args_, [&](const Tile& tile) {
      begin(tile);
      for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
        wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
        if (warp_ == 0) codes.copy();
        if (warp_ == kXWarp) copy_x(tile, chunk);
        if (warp_ == kScaleWarp) scales_.put(tile, chunk, shared_.scales(stage_.index));
        expand(chunk);
      }
    });
  }

 private:
  static constexpr int kXWarp = 1, kScaleWarp = 2;

  // What the first chunk needs of a tile.
  __device__ void begin(const Tile& tile) {
    const float* const scales = args_.own.scales + tile.expert * args_.own.scale_stride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = kGated && !args_.call.activation.is_interleaved
                            ? first_row_of<true>(args_, tile, i) - i * kBlockRows
                            : tile.column_tile * kTileRows;
      const int row = min(first + rows_[i].row_of_tile, args_.num_rows - 1);
      largest_[i] = largest_exponent_of(gpu_load_from_l2(scales + row));
      exponents_at_[i] = args_.own.exponents + tile.expert * args_.own.exponent_stride +
                         int64_t{row} * row_exponents_;
      load_exponents(i, 0);
    }
    if (warp_ == kScaleWarp) scales_.load(tile, 0);
  }

  // Of four groups of columns in pairs, of which the last chunk may have one. Nothing is computed
  // of them here, so that nothing waits for them.
  __device__ void load_exponents(int i, int chunk) {
    constexpr int kGroups = kPanelSize / kExponentColumns;
    const int first = chunk * kGroups;
    const auto* const row = reinterpret_cast<const uint16_t*>(exponents_at_[i]);
    next_exponents_[i][0] = __ldg(row + first / 2);
    next_exponents_[i][1] = __ldg(row + min(first + 2, row_exponents_ - 2) / 2);
  }

  __device__ void copy_x(const Tile& tile, int chunk) const {
    if (!is_elected()) return;
    const uint32_t full = shared_.full(stage_.index), target = shared_.x(stage_.index);
    arrive_expecting(full, tile.units * kUnitSize);
    for (int i = 0; i < tile.units; ++i) {
      copy_box(target + i * kUnitSize,
               &args_.x,
               chunk * kPanelSize,
               tile.first_row + i * kTokenUnit,
               full,
               x_policy_);
    }
  }

  __device__ void expand(int chunk) {
    uint32_t exponents[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      exponents[i] = next_exponents_[i][0] | uint32_t{next_exponents_[i][1]} << 16;
      load_exponents(i, min(chunk + 1, args_.num_chunks - 1));
    }
    wait_for(shared_.codes_full(codes_.index), codes_.parity);
#pragma unroll
    for (int i = 0; i < 2; ++i) expand_row(rows_[i], exponents[i], largest_[i]);
    // The matrix units read this by way of the copy engine's view of memory.
    fence_before_copies();
    __syncwarp();
    if (lane_ == 0) {
      arrive(shared_.full(stage_.index));
      arrive(shared_.codes_empty(codes_.index));
    }
    stage_.advance(kNumStages<true>);
    codes_.advance(kCodeStages);
  }

  __device__ __forceinline__ void expand_row(const ExpandedRow<kGated>& row,
                                             uint32_t exponents,
                                             int largest) const {
    constexpr int kVectors = kCodeRowSize / kVectorSize;
    const uint32_t source = shared_.codes(codes_.index) + row.source;
    const uint32_t target = shared_.matrix(stage_.index) + row.target;
    if (row.begins_with_second) exponents = __funnelshift_l(exponents, exponents, 16);
    uint4 bits[kVectors];
    uint2 tables[kVectors];
#pragma unroll
    for (uint32_t i = 0; i < kVectors; ++i) {
      bits[i] = load_shared(source ^ i * kVectorSize);
      const int distance = largest - static_cast<int>(exponents >> 8 * i & 255);
      tables[i] = load_table(shared_.table(min(distance, kCodeTables - 1)));
    }
#pragma unroll
    for (uint32_t i = 0; i < kVectors; ++i) {
      store_shared_bits(target ^ 2 * i * kVectorSize,
                        expanded(bits[i].x, tables[i]),
                        expanded(bits[i].y, tables[i]));
      store_shared_bits(target ^ (2 * i + 1) * kVectorSize,
                        expanded(bits[i].z, tables[i]),
                        expanded(bits[i].w, tables[i]));
    }
  }

  const MoeWideFloat8Args& args_;
  const Shared<true>& shared_;
  const int thread_, warp_, lane_;
  const ExpandedRow<kGated> rows_[2];
  const int row_exponents_;
  const uint64_t x_policy_;
  const uint8_t* exponents_at_[2];
  uint16_t next_exponents_[2][2];
  int largest_[2];
  TokenScales scales_;
  StageCursor stage_, codes_;
};

}  // namespace atom::ops::device::wide8
