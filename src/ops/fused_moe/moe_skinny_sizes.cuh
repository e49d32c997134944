// Inside fused_moe for few tokens by experts in FP8 on Hopper: the sizes of stages and what the
// kernel is told.
//
// A stage has up to 512 of k of 64 rows of a matrix, so that pieces of a row are long: four stages
// are 256 rows of a tile, of the first matrix 128 gates and their ups. Beside them are stages with
// the same of k of a group's rows of x.
#pragma once

#include <cuda.h>

#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_skinny_plan.cuh"

namespace atom::ops::device::moe_skinny {

constexpr int kPanelSize = 128;  // bytes of k, as many codes, that share a scale
constexpr int kMaxPanels = 64;
constexpr int kChunkPanels = 4;  // of a stage, at most
constexpr int kHalfRows = 128;   // of a tile
constexpr int kStageRows = 64;   // of a half, by a warpgroup
constexpr int kPanelBytes = kStageRows * kPanelSize;

constexpr int kConsumerWarps = 8, kWarpgroupWarps = 4;
constexpr int kNumConsumers = kConsumerWarps * kWarpSize;
constexpr int kMatrixWarp = kConsumerWarps, kXWarp = kMatrixWarp + 1, kItemWarp = kXWarp + 1,
              kReadyWarp = kItemWarp + 1;
static_assert((kReadyWarp + 1) * kWarpSize == kThreads);

// Places of counters.
constexpr int kRowsReady = 0, kItemsTaken = 1, kTilesReady = 2;
static_assert(kTilesReady + kMaxMoeSkinnyGroups == kNumMoeSkinnyCounters);

// Of a choice whose expert is not here.
constexpr uint16_t kNoRow = 0xffff;

// One of the two matrices, of all experts.
struct MatrixArgs {
  // In boxes of 128 bytes of a stage's rows by a chunk's panels, and of a group's rows or a token.
  CUtensorMap matrices, x;
  ExpertMatrices own;
  const float* x_scales;  // [num_panels, scratch.num_rows]; of tokens' codes [tokens, num_panels]
  int num_rows;           // of an expert
  int half_stride;        // rows of the matrix from a tile's first half to its second
  int tile_stride;        // and from tile to tile
  int num_tiles;          // of an expert
  int num_panels;
  int chunk_panels;  // of a stage
  bool has_blocks;   // scales of 128 x 128, else of rows
};

struct MoeSkinnyArgs {
  MatrixArgs matrices[2];
  FusedMoeGpuCall call;
  MoeTokenCodes codes;
  MoeSkinnyScratch scratch;
};

struct TokenGroup {
  uint16_t expert, first_row, num_rows;
  uint16_t first_choice;  // of the list of choices, which has one for each row if it has place
};

// A tile of a matrix and the tokens that it meets, with the scales of the tile's blocks: they come
// from memory, and would be waited for where they are needed.
struct alignas(kVectorSize) Item {
  float2 scales[kMaxPanels];  // of both halves
  int matrix;                 // 0: gates and ups, 1: down, kNoMatrix: there are no more
  int group;
  int row;  // of the expert
  int num_halves;
};
constexpr int kNoMatrix = -1;
constexpr int kNumItems = 3;  // of a block at once: multiplied, copied, taken

}  // namespace atom::ops::device::moe_skinny
