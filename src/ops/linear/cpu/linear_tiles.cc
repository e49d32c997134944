// The loops around the kernels of tiles.
//
// A unit of work is a block of rows times a few panels. Within it k advances in chunks: those of a
// panel and of all rows fit a second-level cache, so that every tile meets the panel's before the
// next comes and every panel the rows'. Sums wait in memory between chunks.
// Meanwhile what comes next is prefetched, a share with each block. A single tile of rows takes a
// panel in one go instead, as fast as memory gives it.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/rounding.h"
#include "ops/linear/cpu/finish_panel.h"
#include "ops/linear/linear_variants.h"
#include "ops/linear/run_claims.h"
#include "ops/linear/tile_kernels.h"

namespace atom::ops {
namespace {

using linear_kernels::kPanelColumns;
using linear_kernels::kTileRows;
using linear_kernels::kTileRowSize;
using linear_kernels::kWeightBlockSize;
using linear_kernels::StoreTable;
using linear_kernels::TileKernels;

// Of a unit, as measured on 16 hyperthreads of an Emerald Rapids: small ones, for threads beside
// another one of their core take twice as long as those that have theirs alone.
constexpr int64_t kMaxTiles = 8;
constexpr int64_t kMaxPanels = 2;
constexpr int64_t kChunkBlocks = 16;
// Bytes ahead of a tile that is alone.
constexpr int64_t kStreamAhead = 8 << 10;
// Multiply-adds below which waking the pool costs more than it gives.
constexpr int64_t kMinParallelWork = 1 << 20;

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Part `part` of `total` items in `parts` runs whose lengths differ by at most one.
Range part_of(int64_t total, int64_t parts, int64_t part) {
  return {total * part / parts, total * (part + 1) / parts};
}

// One call among those that share a region.
struct Plan {
  Plan(const TileKernels& k,
       const LinearCall& c,
       int64_t panels_per_unit,
       char* packed,
       const Plan* before = nullptr)
      : kernels(k),
        call(c),
        num_rows(c.x.size(0)),
        num_tiles(ceil_div(num_rows, kTileRows)),
        num_row_blocks(ceil_div(num_tiles, kMaxTiles)),
        num_steps(c.weight.data.size(1)),
        num_whole_blocks(num_steps / k.block_steps),
        num_panels(c.weight.data.size(0)),
        num_groups(ceil_div(num_panels, streams() ? 1 : panels_per_unit)),
        packed_x(packed),
        last_tile(num_tiles + (before == nullptr ? 0 : before->last_tile)),
        last_unit(num_row_blocks * num_groups + (before == nullptr ? 0 : before->last_unit)) {}

  bool streams() const { return num_tiles == 1 && !kernels.expands; }
  int64_t num_blocks() const { return ceil_div(num_steps, kernels.block_steps); }

  // Rows in pairs of tiles, which are what kernels like best.
  Range row_block(int64_t block) const {
    const Range pairs = part_of(ceil_div(num_tiles, 2), num_row_blocks, block);
    return {pairs.begin * 2 * kTileRows, std::min(pairs.end * 2 * kTileRows, num_rows)};
  }
  Range panel_group(int64_t group) const { return part_of(num_panels, num_groups, group); }
  // The chunk of blocks that begins with `block`; one that ends within the panel's steps is alone.
  Range chunk_at(int64_t block) const {
    if (block == num_whole_blocks) return {block, block + 1};
    const int64_t size = streams() ? num_whole_blocks : kChunkBlocks;
    return {block, std::min(block + size, num_whole_blocks)};
  }
  // Blocks of the tile that begins with `row`; those of the following tiles come next.
  char* packed_blocks(const Range& chunk, int64_t row) const {
    return packed_x + (chunk.begin * num_rows + chunk.size() * row) * kTileRowSize;
  }
  const char* panel_at(int64_t panel, int64_t block) const {
    const int64_t step_size = kWeightBlockSize / kernels.block_steps;
    return static_cast<const char*>(call.weight.data.raw_data()) +
           (panel * num_steps + block * kernels.block_steps) * step_size;
  }

  const TileKernels& kernels;
  const LinearCall& call;
  const int64_t num_rows;
  const int64_t num_tiles;
  const int64_t num_row_blocks;
  const int64_t num_steps;
  const int64_t num_whole_blocks;
  const int64_t num_panels;
  const int64_t num_groups;  // of panels
  char* const packed_x;      // [chunk][tile][block of the chunk][row of the tile][64 bytes]
  // This call's among those of all calls.
  const int64_t last_tile, last_unit;
};

// What a thread works with.
struct Buffers {
  alignas(64) float sums[kMaxPanels * kMaxTiles * kTileRows * kPanelColumns];
  alignas(64) char weight[kChunkBlocks * kWeightBlockSize];
};

void pack_tile(const Plan& plan, int64_t tile) {
  const Tensor& x = plan.call.x;
  const int64_t first = tile * kTileRows;
  const int64_t rows = std::min<int64_t>(plan.num_rows - first, kTileRows);
  const int64_t row_stride = x.stride(0) * dtype_size(x.dtype());
  const int64_t row_size = x.size(1) * dtype_size(x.dtype());
  const char* from = static_cast<const char*>(x.raw_data()) + first * row_stride;
  for (Range chunk = plan.chunk_at(0); chunk.begin < plan.num_blocks();
       chunk = plan.chunk_at(chunk.end)) {
    char* to = plan.packed_blocks(chunk, first);
    for (int64_t block = chunk.begin; block < chunk.end; ++block, to += rows * kTileRowSize) {
      const int64_t begin = block * kTileRowSize;
      plan.kernels.pack_x(
          from + begin, row_stride, rows, std::min(kTileRowSize, row_size - begin), to);
    }
  }
}

// A chunk of a panel as it is multiplied.
const char* weight_blocks(const Plan& plan, const Range& chunk, int64_t panel, char* buffer) {
  const char* weight = plan.panel_at(panel, chunk.begin);
  if (!plan.kernels.expands && chunk.end <= plan.num_whole_blocks) return weight;
  const int64_t block_steps = plan.kernels.block_steps;
  const int64_t steps =
      std::min(chunk.end * block_steps, plan.num_steps) - chunk.begin * block_steps;
  plan.kernels.expand(weight, steps, buffer);
  return buffer;
}

// What is multiplied after a chunk of a panel of `panels`.
const char* next_weight(const Plan& plan, const Range& chunk, int64_t panel, const Range& panels) {
  if (plan.streams()) return plan.panel_at(panel, chunk.begin) + kStreamAhead;
  if (panel + 1 < panels.end) return plan.panel_at(panel + 1, chunk.begin);
  if (chunk.end < plan.num_blocks()) return plan.panel_at(panels.begin, chunk.end);
  return plan.panel_at(panels.end, 0);
}

// Products of kernels that meet each block of a panel.
int64_t num_passes(int64_t num_rows) {
  const int64_t tiles = ceil_div(num_rows, kTileRows);
  return tiles / 2 * 2 + tiles % 2;
}

void run_unit(const Plan& plan, const StoreTable& stores, int64_t unit, Buffers& buffers) {
  constexpr int64_t kBlockLines = kWeightBlockSize / 64;
  const Range rows = plan.row_block(unit % plan.num_row_blocks);
  const Range panels = plan.panel_group(unit / plan.num_row_blocks);
  const int64_t sums_size = ceil_div(rows.size(), kTileRows) * kTileRows * kPanelColumns;
  const auto sums_of = [&](int64_t panel) {
    return buffers.sums + (panel - panels.begin) * sums_size;
  };
  plan.kernels.begin(plan.num_rows);
  for (Range chunk = plan.chunk_at(0); chunk.begin < plan.num_blocks();
       chunk = plan.chunk_at(chunk.end)) {
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      plan.kernels.multiply(
          {.x = plan.packed_blocks(chunk, rows.begin),
           .num_rows = rows.size(),
           .weight = weight_blocks(plan, chunk, panel, buffers.weight),
           .num_blocks = chunk.size(),
           .sums = sums_of(panel),
           .adds = chunk.begin > 0,
           .prefetch = next_weight(plan, chunk, panel, panels),
           .prefetch_lines = static_cast<int>(ceil_div(kBlockLines, num_passes(rows.size())))});
    }
  }
  const PanelSums kind = {stores, 1.0f, plan.kernels.integer_sums};
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    finish_panel(plan.call, kind, panel, {rows.begin, rows.end}, sums_of(panel));
  }
}

using Plans = std::span<const Plan>;

// The plan that an item of all calls belongs to, by the end of its own; the item becomes one of
// the plan.
const Plan& plan_of(Plans plans, const int64_t Plan::*last, int64_t* item) {
  const Plan* plan = std::upper_bound(
      plans.data(), plans.data() + plans.size(), *item, [&](int64_t i, const Plan& p) {
        return i < p.*last;
      });
  if (plan != plans.data()) *item -= plan[-1].*last;
  return *plan;
}

// Few large units read less, many small ones are shared more evenly.
int64_t choose_panels_per_unit(std::span<const LinearCall> calls, int num_threads) {
  int64_t num_row_blocks = 0;
  for (const LinearCall& call : calls) {
    num_row_blocks += ceil_div(call.x.size(0), kMaxTiles * kTileRows);
  }
  const int64_t num_panels = calls.front().weight.data.size(0);
  // In halves of the time of a panel; each unit reads its rows, which takes one.
  const auto cost = [&](int64_t panels) {
    const int64_t units = num_row_blocks * ceil_div(num_panels, panels);
    return ceil_div(units, num_threads) * (2 * panels + 1);
  };
  int64_t best = kMaxPanels;
  for (int64_t panels = kMaxPanels / 2; panels > 0; panels /= 2) {
    if (cost(panels) < cost(best)) best = panels;
  }
  return best;
}

void run_plans(const Stream& stream, Plans plans, const StoreTable& stores, int64_t num_rows) {
  const LinearWeight& weight = plans.front().call.weight;
  ThreadPool& pool = stream.pool();
  const int64_t num_tiles = plans.back().last_tile, num_units = plans.back().last_unit;
  const auto pack_tiles = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t tile = i;
      const Plan& plan = plan_of(plans, &Plan::last_tile, &tile);
      pack_tile(plan, tile);
    }
  };
  const auto run = [&](int64_t i, Buffers& buffers) {
    int64_t unit = i;
    const Plan& plan = plan_of(plans, &Plan::last_unit, &unit);
    run_unit(plan, stores, unit, buffers);
  };
  const auto end = plans.front().kernels.end;
  if (num_rows * weight.out_features * weight.in_features < kMinParallelWork) {
    Buffers buffers;
    pack_tiles(0, num_tiles);
    for (int64_t unit = 0; unit < num_units; ++unit) run(unit, buffers);
    return end();
  }
  pool.parallel_for(num_tiles, 1, pack_tiles);
  RunClaims claims(num_units, pool.num_active());
  pool.share([&](int worker) {
    Buffers buffers;
    for (int64_t unit = claims.claim(worker); unit >= 0; unit = claims.claim(worker)) {
      run(unit, buffers);
    }
    end();
  });
}

}  // namespace

void linear_tiles(const TileKernels& kernels,
                  const StoreTable& stores,
                  const Stream& stream,
                  std::span<const LinearCall> calls,
                  Workspace& scratch) {
  Workspace::Scope scope(scratch);
  int64_t num_rows = 0;
  for (const LinearCall& call : calls) num_rows += call.x.size(0);
  const int64_t num_blocks = ceil_div(calls.front().weight.data.size(1), kernels.block_steps);
  const int64_t row_size = num_blocks * kTileRowSize;
  // A whole tile is read where the last rows begin.
  const int64_t read_behind = kTileRows * kTileRowSize;
  const Tensor packed_x = scratch.tensor({num_rows * row_size + read_behind}, DType::kUInt8);
  if (stream.is_dry_run()) return;
  const int64_t panels_per_unit = choose_panels_per_unit(calls, stream.pool().num_active());
  char* packed = static_cast<char*>(packed_x.raw_data());
  std::vector<Plan> plans;
  plans.reserve(calls.size());
  for (const LinearCall& call : calls) {
    const Plan* before = plans.empty() ? nullptr : &plans.back();
    plans.emplace_back(kernels, call, panels_per_unit, packed, before);
    packed += call.x.size(0) * row_size;
  }
  run_plans(stream, plans, stores, num_rows);
}

}  // namespace atom::ops
