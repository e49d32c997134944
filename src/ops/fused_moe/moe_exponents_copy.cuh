// Inside fused_moe in MXFP4 on Hopper: the exponents of a tile's rows on their way to shared
// memory.
#pragma once

#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/fused_moe/moe_tiles.cuh"

namespace atom::ops::device {

// Those of both halves of a tile, which begin at rows first_row(half) of the expert's matrix and
// may reach behind its last one, to the next of kNumBuffers. By one thread.
template <int kHalfRows, int kNumBuffers, typename Args, typename Shared, typename FirstRow>
__device__ __forceinline__ void copy_exponents(const Args& args,
                                               const Shared& shared,
                                               int expert,
                                               const FirstRow& first_row,
                                               uint64_t policy,
                                               StageCursor& buffer) {
  const uint32_t full = shared.exponents_full(buffer.index);
  wait_for(shared.exponents_empty(buffer.index), buffer.parity ^ 1);
  int sizes[2];
  for (int half = 0; half < 2; ++half) {
    const int rows = args.num_rows - first_row(half);
    sizes[half] = max(0, min(kHalfRows, rows)) * args.row_exponents;
  }
  arrive_expecting(full, sizes[0] + sizes[1]);
  for (int half = 0; half < 2; ++half) {
    if (sizes[half] == 0) continue;
    const int row = first_row(half);
    copy_bulk(
        shared.exponents(buffer.index) + half * kHalfRows * args.row_exponents,
        args.own.exponents + expert * args.own.exponent_stride + int64_t{row} * args.row_exponents,
        sizes[half],
        full,
        policy);
  }
  buffer.advance(kNumBuffers);
}

}  // namespace atom::ops::device
