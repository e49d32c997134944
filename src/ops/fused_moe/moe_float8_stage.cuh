// Inside fused_moe for many tokens by experts in FP8 on Hopper: shared memory, the thread that
// copies codes to the stages, and the product of a warpgroup.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_float8.h"
#include "ops/fused_moe/moe_tiles.cuh"

namespace atom::ops::device::moe8 {

constexpr int kTileColumns = 256;
constexpr int kPanelSize = 128;  // bytes of k, as many codes
constexpr int kBlockRows = 128;  // of a matrix that share a scale
constexpr int kWarpgroupSize = 128, kWarpgroupRows = 64;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kXSize = kMoeTileRows * kPanelSize;
constexpr int kHalfSize = kTileColumns / 2 * kPanelSize;  // of the matrix's part
constexpr int kStageSize = kXSize + 2 * kHalfSize;
constexpr int kBarrierSize = 8;
constexpr int kWarpRows = 16;

using RowScales = MoeRowScales;

struct MoeFloat8Args {
  // In boxes of 128 bytes of a tile's rows, and of half a tile's rows of all experts' matrices.
  CUtensorMap x, matrices;
  FusedMoeGpuCall call;
  MoeFloat8Scratch scratch;
  ExpertMatrices own;     // the same matrices
  const float* x_scales;  // [rows, num_chunks]
  int num_rows;           // of a matrix
  int num_outputs;        // of a row: those, or half of them
  int num_column_tiles;
  int num_chunks;  // of 128 of k
  RowScales scales;

  __device__ const FusedMoeGpuScratch& tiles() const { return scratch.shared; }
};

// The first row of the matrix that half of a tile's columns meets. With the activation the halves
// are 128 gates and their ups.
template <bool kGated>
__device__ inline int first_row_of(const MoeFloat8Args& args, const MoeTile& tile, int half) {
  constexpr int kHalf = kTileColumns / 2;
  return kGated ? half * (args.num_rows / 2) + tile.column_tile * kHalf
                : tile.column_tile * kTileColumns + half * kHalf;
}

template <bool kGated>
class Shared {
 public:
  static constexpr int kNumStages = kGated ? 4 : 3;
  // A row of outputs on its way, padded so that rows begin in different banks: codes of 128, or 256
  // elements of 2 bytes.
  static constexpr int kRowStride = (kGated ? kTileColumns / 2 : 2 * kTileColumns) + 16;
  static constexpr int kRowsSize = kWarpRows * kRowStride;  // of a warp
  static constexpr int kRowsOffset = kNumStages * kStageSize;
  static constexpr int kBarriersOffset = kRowsOffset + kConsumerWarps * kRowsSize;
  static constexpr int kSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;

  __device__ explicit Shared(uint8_t* memory) : memory_(memory), base_(shared_address(memory)) {}

  __device__ uint32_t x(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t matrix(int stage) const { return x(stage) + kXSize; }
  __device__ uint32_t full(int stage) const {
    return base_ + kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(kNumStages + stage); }
  __device__ uint8_t* rows(int warp) const { return memory_ + kRowsOffset + warp * kRowsSize; }

 private:
  uint8_t* const memory_;
  const uint32_t base_;
};

// By a warp, of which one lane copies.
template <bool kGated>
__device__ void copy_tiles(const MoeFloat8Args& args, const Shared<kGated>& shared) {
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  StageCursor stage;
  for_tiles(args, [&](const MoeTile& tile) {
    if (!copies) return;
    const int first = tile.expert * args.num_rows;
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, kStageSize);
      const int column = chunk * kPanelSize;
      const uint32_t matrix = shared.matrix(stage.index);
      copy_box(shared.x(stage.index), &args.x, column, tile.first_row, full, policy);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        copy_box(matrix + half * kHalfSize,
                 &args.matrices,
                 column,
                 first + first_row_of<kGated>(args, tile, half),
                 full,
                 policy);
      }
      stage.advance(Shared<kGated>::kNumStages);
    }
  });
}

#define ATOM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATOM_D16(i) ATOM_D4(i), ATOM_D4(i + 4), ATOM_D4(i + 8), ATOM_D4(i + 12)

// d[64, 128] = a[64, 32] b[128, 32]^T, plus d itself if `keeps`.
__device__ inline void multiply_by_128(float (&d)[64], uint64_t a, uint64_t b, bool keeps) {
  asm volatile(
      "{\n.reg .pred keeps;\nsetp.ne.b32 keeps, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, keeps, 1, 1;\n}"
      : ATOM_D16(0), ATOM_D16(16), ATOM_D16(32), ATOM_D16(48)
      : "l"(a), "l"(b), "r"(static_cast<int>(keeps)));
}

#undef ATOM_D4
#undef ATOM_D16

}  // namespace atom::ops::device::moe8
