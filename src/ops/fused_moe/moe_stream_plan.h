// Inside fused_moe's kernels for few tokens: what a launch is divided into.
#pragma once

#include "ops/fused_moe/moe_stream.h"

namespace atom::ops::device {

constexpr int kConsumerWarps = 8;
constexpr int kTileRows = 16;  // of a matrix that a unit of work multiplies
constexpr int kStepSize = 64;  // bytes of a row that a step of a warp multiplies
constexpr int kMaxStages = 12;
// Bytes between rows in shared memory, against bank conflicts: lanes of a row read 16 bytes each,
// or a word of the same 16.
constexpr int kStageRowSkew = 64, kGroupRowSkew = 16;
constexpr int kMaxXBuffers = 2;

// One matrix of a call, by what is a kernel's own.
struct MoeStreamArgs {
  FusedMoeGpuCall call;
  FusedMoeGpuScratch scratch;
  ExpertMatrices matrices;
  const void* x;
  int64_t x_stride;  // bytes
  int x_size;        // bytes of a row of x
  int num_rows;      // of a matrix
  int row_size;      // bytes of a matrix's row
  int tiles_per_expert;
  int num_stages;  // of the ring
  int stage_size;
  int row_exponents;  // bytes; 0: none
  // Where groups of columns have scales: bytes from a row's to the next one's in a stage, and
  // whether they are copied row by row, or those of eight at once.
  int row_scales;
  bool copies_scales_by_row;
  int num_x_buffers;
  int num_x_rows;  // of a buffer: no group of the call has more
  // Of shared memory, in bytes from its beginning, which the barriers take.
  int plan, sums, x_buffers, ring;
  int x_row_stride;
  int shared_size;
};

}  // namespace atom::ops::device
