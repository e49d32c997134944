#include "ops/linear/blocks/tuning.h"

#include <algorithm>

#include "base/rounding.h"

namespace atom::ops {
namespace {

constexpr int kGatedColumns = 128;  // of tiles of which a half are gates
constexpr LinearBlocksTuning kTunings[] = {{256, 128, 2, 1, 1},
                                           {256, 128, 2, 1, 1, false},
                                           {128, 192, 2, 1, 1},
                                           {128, 192, 1, 2, 1},
                                           {128, 128, 2, 1, 1},
                                           {128, 128, 1, 1, 1},
                                           {128, 128, 2, 1, 1, false},
                                           {128, 128, 1, 1, 1, false},
                                           {128, 128, 1, 1, 2, false},
                                           {128, 96, 2, 1, 1, false},
                                           {128, 64, 1, 1, 1},
                                           {128, 64, 1, 1, 1, false},
                                           {128, 64, 1, 1, 2, false}};

int divide_up(int a, int b) {
  return static_cast<int>(ceil_div(a, b));
}

// What products take with each tile when there are many, relative; 0: it is for few rows.
double cost_of_products(const LinearBlocksTuning& t) {
  if (t.tile_rows == 256) return t.takes_turns ? 1.0 : 1.01;
  if (!t.takes_turns || t.cluster_columns > 1) return 0;
  if (t.tile_columns == 128) return t.cluster_rows > 1 ? 1.05 : 1.1;
  return t.tile_columns == 64 ? 1.3 : 0;
}

// Of many rows, in groups of the smallest tile; 0: the tile is for few rows.
double many_rows_cost(const LinearBlocksShape& shape,
                      const LinearBlocksTuning& tuning,
                      int num_multiprocessors) {
  // Groups that take as long as a tile's beginning and end.
  constexpr double kTileGroups = 3;
  return linear_blocks_steps(shape, tuning, num_multiprocessors).rounds() *
         (shape.num_groups + kTileGroups) * cost_of_products(tuning) * tuning.tile_rows *
         tuning.tile_columns;
}

// Whether a tile of few rows is worth its cost: of the others those that take turns were slower
// with as many columns.
bool is_for_few_rows(const LinearBlocksTuning& t) {
  return t.tile_rows == 128 && (!t.takes_turns || t.tile_columns > 128);
}

// Of few rows, in units of about a microsecond of an H200, where a multiprocessor has a tile or two
// and copies take as long as products. With these constants the choice takes at most 2 % longer
// than the best tile of ten linears of models at 65 to 256 rows, but for two with k whole (6 and 11
// %).
double few_rows_cost(const LinearBlocksShape& shape,
                     const LinearBlocksTuning& tuning,
                     int num_multiprocessors) {
  constexpr double kGroupSize = 128;     // bytes
  constexpr double kProducts = 5e6;      // of a multiprocessor
  constexpr double kWideProducts = 0.9;  // what those of more than 128 columns take of that
  constexpr double kFilled = 0.07e6;     // bytes that come to a multiprocessor's shared memory
  constexpr double kRead = 6e6;          // bytes that all of them get from the second-level cache
  constexpr double kWait = 0.15;         // of a group, for the products
  constexpr double kTile = 1.5;          // a tile's beginning and end
  constexpr double kJoin = 2;            // the sum of parts
  if (!is_for_few_rows(tuning)) return 0;
  const LinearBlocksSteps steps = linear_blocks_steps(shape, tuning, num_multiprocessors);
  const double rows = linear_blocks_tile_rows(shape, tuning), columns = tuning.tile_columns;
  const double share = columns > 128 ? kWideProducts : 1;
  const double products = share * tuning.tile_rows * columns * kGroupSize / kProducts + kWait;
  const double filled = (rows + columns) * kGroupSize / kFilled;
  const double read = (rows / tuning.cluster_columns + columns / tuning.cluster_rows) * kGroupSize *
                      steps.at_a_time * tuning.cluster_size() / kRead;
  const double group = std::max({products, filled, read});
  const int num_groups = divide_up(shape.num_groups, tuning.parts);
  return steps.rounds() * (num_groups * group + kTile) + (tuning.parts > 1 ? kJoin : 0);
}

bool has_few_rows(const LinearBlocksShape& shape) {
  // Of DeepSeek-V3's gate and up 192 rows take 149 us by a tile of few rows and 145 by one of many.
  constexpr int kMinRows = 65, kMaxGatedRows = 128;
  return shape.num_rows >= kMinRows &&
         shape.num_rows <= (shape.is_gated ? kMaxGatedRows : kMaxFewLinearBlocksRows);
}

LinearBlocksTuning cheapest(const LinearBlocksShape& shape, int num_multiprocessors, bool divides) {
  double least = 0;
  LinearBlocksTuning best;
  for (const LinearBlocksTuning& tuning : kTunings) {
    if (!takes_linear_blocks(shape, tuning) || (tuning.parts > 1 && !divides)) continue;
    const double cost = has_few_rows(shape) ? few_rows_cost(shape, tuning, num_multiprocessors)
                                            : many_rows_cost(shape, tuning, num_multiprocessors);
    if (cost == 0 || (least != 0 && cost >= least)) continue;
    least = cost;
    best = tuning;
  }
  return best;
}

}  // namespace

std::span<const LinearBlocksTuning> linear_blocks_tunings() {
  return kTunings;
}

bool takes_linear_blocks(const LinearBlocksShape& shape, const LinearBlocksTuning& tuning) {
  if (shape.is_gated) return tuning.tile_columns == kGatedColumns && tuning.parts == 1;
  return shape.num_groups >= tuning.parts;
}

LinearBlocksSteps linear_blocks_steps(const LinearBlocksShape& shape,
                                      const LinearBlocksTuning& tuning,
                                      int num_multiprocessors) {
  const int width = tuning.tile_columns / (shape.is_gated ? 2 : 1);
  LinearBlocksSteps steps;
  steps.rows = divide_up(shape.num_rows, tuning.tile_rows * tuning.cluster_rows);
  steps.columns = divide_up(shape.width, width * tuning.cluster_columns);
  steps.at_a_time = std::min(steps.count(), num_multiprocessors / tuning.cluster_size());
  return steps;
}

int linear_blocks_tile_rows(const LinearBlocksShape& shape, const LinearBlocksTuning& tuning) {
  constexpr int kUnit = 16;
  if (shape.num_rows > kMaxFewLinearBlocksRows) return tuning.tile_rows;
  const int num_tiles = divide_up(shape.num_rows, tuning.tile_rows);
  return divide_up(divide_up(shape.num_rows, num_tiles), kUnit) * kUnit;
}

LinearBlocksTuning linear_blocks_tuning(const LinearBlocksShape& shape, int num_multiprocessors) {
  return cheapest(shape, num_multiprocessors, false);
}

LinearBlocksTuning linear_blocks_divided_tuning(const LinearBlocksShape& shape,
                                                int num_multiprocessors) {
  return cheapest(shape, num_multiprocessors, true);
}

}  // namespace atom::ops
