// Inside fused_moe by wide tiles in FP8 on Hopper: shared memory and what a launch is given. The
// two blocks of a cluster have the same rows of the matrix and neighboring tokens. Each warpgroup
// has half of the rows: with the activation 64 gates and their ups, else 128 rows, whose groups of
// eight are by turns of one product and of the other, so that those of a warp follow each other.
// Matrices in MXFP4 are copied to a ring of their own, from which they are expanded to the stages.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_tiles.cuh"
#include "ops/fused_moe/moe_wide_float8_shares.h"

namespace atom::ops::device::wide8 {

constexpr int kClusterSize = 2;
constexpr int kPanelSize = 128;  // bytes of k, as many codes, which share a scale
constexpr int kBlockRows = 128;  // of a matrix that share a scale
constexpr int kWarpgroupSize = 128;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
template <bool kFloat4>
constexpr int kNumStages = kFloat4 ? 3 : 4;
constexpr int kProducts = 2, kProductRows = 64;  // of a warpgroup
constexpr int kPartSize = kProductRows * kPanelSize;
constexpr int kMatrixSize = 2 * kProducts * kPartSize;
constexpr int kUnitSize = kTokenUnit * kPanelSize;
constexpr int kStageSize = kMatrixSize + kTileTokens * kPanelSize;
constexpr int kScalesSize = 2 * kTileTokens * int{sizeof(float)};  // of a stage
// What outputs are on their way: with the activation a tile's codes, largest magnitudes of each
// warp's and what codes are multiplied by; else of each warpgroup some times 16 tokens by 128
// outputs, and its tokens' choices and weights.
constexpr int kCodeStride = kBlockRows + 16;
constexpr int kCodesSize = kTileTokens * kCodeStride;
constexpr int kLargestSize = kConsumerWarps * kTileTokens * int{sizeof(float)};
constexpr int kFactorsSize = kTileTokens * int{sizeof(float)};
constexpr int kResultStride = 2 * kBlockRows + 16, kResultSize = kTokenUnit * kResultStride;
constexpr int kResultBuffers = 3, kResultsSize = kResultBuffers * kResultSize;
constexpr int kChoicesSize = 2 * kTileTokens * int{sizeof(int32_t)};
constexpr int kOutputSize = 2 * (kResultsSize + kChoicesSize);
static_assert(kCodesSize + kLargestSize + kFactorsSize <= kOutputSize);
constexpr int kBarrierSize = 8;
// Of matrices in MXFP4.
constexpr int kCodeStages = 3;
constexpr int kTileRows = 2 * kProducts * kProductRows, kCodeRowSize = kPanelSize / 2;
constexpr int kCodeStageSize = kTileRows * kCodeRowSize;
constexpr int kMagnitudes = 8, kCodeTables = 16;

template <bool kFloat4>
struct Layout {
  static constexpr int kCodes = kNumStages<kFloat4> * kStageSize;
  static constexpr int kScales = kCodes + (kFloat4 ? kCodeStages * kCodeStageSize : 0);
  static constexpr int kOutput = kScales + kNumStages<kFloat4> * kScalesSize;
  static constexpr int kTables = kOutput + kOutputSize;
  static constexpr int kBarriers = kTables + (kFloat4 ? kCodeTables * kMagnitudes : 0);
  static constexpr int kNumBarriers = 2 * (kNumStages<kFloat4> + (kFloat4 ? kCodeStages : 0));
  static constexpr int kSize = kBarriers + kNumBarriers * kBarrierSize;
};

using RowScales = MoeRowScales;

struct MoeWideFloat8Args {
  // In boxes of 128 bytes of kTokenUnit rows, and of kProductRows of all experts' matrices; in
  // MXFP4 of 64 bytes of kBlockRows.
  CUtensorMap x, matrices;
  FusedMoeGpuCall call;
  MoeFloat8Scratch scratch;
  ExpertMatrices own;     // the same matrices
  const float* x_scales;  // [num_chunks, rows_of_scales]
  int64_t rows_of_scales;
  int num_rows, num_columns;  // of a matrix
  int num_outputs;            // of a row: those, or half of them
  int num_column_tiles;
  int num_chunks;  // of 128 of k
  RowScales scales;
};

template <bool kFloat4>
class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : base_(shared_address(memory)) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t x(int stage) const { return matrix(stage) + kMatrixSize; }
  // Of tokens times those of one of two parts of the matrix.
  __device__ uint32_t scales(int stage) const { return base_ + At::kScales + stage * kScalesSize; }
  __device__ uint32_t output() const { return base_ + At::kOutput; }
  __device__ uint32_t full(int stage) const { return base_ + At::kBarriers + stage * kBarrierSize; }
  __device__ uint32_t empty(int stage) const { return full(kNumStages<kFloat4> + stage); }

  // Of a tile's rows in MXFP4, and what becomes of a code's magnitude by how many powers of two its
  // factor is below the row's largest.
  __device__ uint32_t codes(int stage) const { return base_ + At::kCodes + stage * kCodeStageSize; }
  __device__ uint32_t table(int distance) const {
    return base_ + At::kTables + distance * kMagnitudes;
  }
  __device__ uint32_t codes_full(int stage) const { return full(2 * kNumStages<kFloat4> + stage); }
  __device__ uint32_t codes_empty(int stage) const { return codes_full(kCodeStages + stage); }

  // By one thread. In FP8 both blocks of the cluster copy to a stage when both have done with it.
  __device__ void init_barriers() const {
    constexpr int kExpanders = kWarpgroupSize / kWarpSize;
    for (int i = 0; i < kNumStages<kFloat4>; ++i) {
      // By who copies x, and who copies scales or expands.
      init_barrier(full(i), 1 + (kFloat4 ? kExpanders : 1));
      init_barrier(empty(i), (kFloat4 ? 1 : kClusterSize) * kConsumerWarps);
    }
    for (int i = 0; kFloat4 && i < kCodeStages; ++i) {
      init_barrier(codes_full(i), 1);
      init_barrier(codes_empty(i), kExpanders);
    }
    publish_barriers();
  }

 private:
  using At = Layout<kFloat4>;
  const uint32_t base_;
};

}  // namespace atom::ops::device::wide8
