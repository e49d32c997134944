// Which tiles multiply in FP8 with scales of groups on Hopper (blocks_cuda.h), and among how many
// blocks k is divided: functions of the shape and of the number of multiprocessors alone.
#pragma once

#include <span>

namespace atom::ops {

// What a block multiplies, and with which others it makes a cluster.
struct LinearBlocksTuning {
  int tile_rows = 256;      // of x: 256 or 128
  int tile_columns = 128;   // of the weight
  int cluster_rows = 2;     // row tiles that share the weight's copies: 1 or 2
  int cluster_columns = 1;  // column tiles that share those of x: 1 or 2
  int parts = 1;            // of k, which are added in order: each of a block
  // Of the block's two warpgroups at the matrix units. Otherwise, with 128 rows, both begin the
  // products of a group before they add those of the group before.
  bool takes_turns = true;

  bool operator==(const LinearBlocksTuning&) const = default;
  constexpr int cluster_size() const { return cluster_rows * cluster_columns * parts; }
};

// Up to which a multiprocessor has hardly more than one tile.
constexpr int kMaxFewLinearBlocksRows = 256;

struct LinearBlocksShape {
  int num_rows = 0;
  int width = 0;  // of y
  int num_groups = 0;
  bool is_gated = false;  // two weight rows for a column of y
};

// All that there are kernels for.
std::span<const LinearBlocksTuning> linear_blocks_tunings();

// Whether the tile has a kernel for the shape: one with an activation takes tiles of 128 columns.
bool takes_linear_blocks(const LinearBlocksShape& shape, const LinearBlocksTuning& tuning);

// What the clusters do, one after the other where all do not fit the multiprocessors.
struct LinearBlocksSteps {
  int rows, columns;  // of the clusters' tiles
  int at_a_time;      // clusters
  int count() const { return rows * columns; }
  int rounds() const { return (count() + at_a_time - 1) / at_a_time; }
};
LinearBlocksSteps linear_blocks_steps(const LinearBlocksShape& shape,
                                      const LinearBlocksTuning& tuning,
                                      int num_multiprocessors);

// Rows that a tile has of the shape, a multiple of 16. All tiles of few rows have as many: copies
// of rows that do not exist cost more than those of rows (an H200 took longer for Qwen3-Next's
// output of 192 rows than of 256).
int linear_blocks_tile_rows(const LinearBlocksShape& shape, const LinearBlocksTuning& tuning);

// What takes least time with k whole, by which a row has the same bits in every batch.
LinearBlocksTuning linear_blocks_tuning(const LinearBlocksShape& shape, int num_multiprocessors);
// The same where k may be divided too.
LinearBlocksTuning linear_blocks_divided_tuning(const LinearBlocksShape& shape,
                                                int num_multiprocessors);

}  // namespace atom::ops
