// Inner kernels of linear by tiles of 16 rows of 64 bytes, one table per kind of product. A block
// is what one tile holds of k: 32 values in bfloat16, 64 in INT8. Plain declarations, as in
// linear_kernels.h.
#pragma once

#include <cstdint>

#include "ops/linear/linear_kernels.h"

namespace atom::ops::linear_kernels {

constexpr int kTileRows = 16;
constexpr int64_t kTileRowSize = 64;
// Of 16 lines, each 4 bytes of k for the 64 columns of a panel.
constexpr int64_t kWeightBlockSize = kTileRows * kPanelColumns * 4;

// Rows of x times blocks of a panel, into sums. Rows lie in tiles of 16; the last may have fewer,
// and what a kernel reads behind them makes sums behind theirs that mean nothing.
struct TileProduct {
  const char* x;  // [tiles][num_blocks][rows of the tile][64 bytes]
  int64_t num_rows;
  const char* weight;  // [num_blocks][16][64][4 bytes]
  int64_t num_blocks;
  float* sums;           // [tiles][16][64]
  bool adds;             // to the sums, which are zero else
  const char* prefetch;  // what comes next, into the second-level cache
  int prefetch_lines;    // of 64 bytes, for each block that a kernel multiplies
};

struct TileKernels {
  int block_steps;  // of a panel, each two k
  // Sums are 32-bit integers in the place of floats.
  bool integer_sums;

  // A thread calls these around its products. Of up to 16 rows, all that there are, tiles have no
  // more.
  void (*begin)(int64_t num_rows);
  void (*end)();
  // A block of `size` bytes, up to 64, of each row to a tile; zeros fill up the rest.
  void (*pack_x)(const char* x, int64_t row_stride, int64_t rows, int64_t size, char* tile);
  // `steps` steps of a panel as blocks, with zeros to the end of the last. Whole blocks need it
  // only where `expands`.
  void (*expand)(const char* panel, int64_t steps, char* blocks);
  bool expands;
  void (*multiply)(const TileProduct& product);
};

extern const TileKernels kAmxBFloat16;
extern const TileKernels kAmxInt8;

}  // namespace atom::ops::linear_kernels
