// The loops around the kernels: rows in tiles, tiles in blocks, k in chunks.
//
// A unit of work is one panel of columns times one block of rows. Within it k advances in chunks
// small enough to stay in a core's cache while every tile of the block passes over them; the
// float32 sums wait in memory between chunks, which keeps each a single ascending sum. Meanwhile
// the tiles prefetch the following chunk, a share each, so that memory is read while the core
// multiplies.
#include <algorithm>
#include <span>
#include <vector>

#include "base/cpu_info.h"
#include "base/rounding.h"
#include "ops/linear/cpu/finish_panel.h"
#include "ops/linear/linear_variants.h"
#include "ops/linear/run_claims.h"
#include "tensor/float4.h"

namespace atom::ops {
namespace {

using linear_kernels::GroupScales;
using linear_kernels::KernelTable;
using linear_kernels::kMaxTileRows;
using linear_kernels::kPanelColumns;
using linear_kernels::kStepUnroll;
using linear_kernels::Prefetch;
using linear_kernels::StoreTable;

constexpr int64_t kCacheLine = 64;
constexpr int64_t kMaxBlockTiles = 32;
constexpr int64_t kMaxBlockRows = kMaxBlockTiles * kMaxTileRows;
// Bytes of a panel: it and the next one fit a second-level cache of 512 KiB with room to spare.
constexpr int64_t kChunkSize = 128 << 10;
// Rows from which on expanding a panel in memory costs less than in the registers of every tile.
constexpr int64_t kMinExpandedRows = kMaxTileRows + 1;
// Multiply-adds below which waking the pool costs more than it gives.
constexpr int64_t kMinParallelWork = 1 << 16;

// `total` items split into `parts` runs whose lengths differ by at most one.
struct EvenSplit {
  int64_t total;
  int64_t parts;
  int64_t begin(int64_t part) const { return total * part / parts; }
};

int64_t num_groups(const LinearWeight& weight) {
  return weight.has_groups() ? ceil_div(weight.in_features, weight.group_size) : 0;
}

bool has_group_scales(const LinearCall& call) {
  return call.x_scales.defined() && call.x_scales.rank() == 2;
}

const KernelTable& multiplier_for(const KernelTable& kernels, int64_t num_rows) {
  const bool expands = kernels.expanded != nullptr && num_rows >= kMinExpandedRows;
  return expands ? *kernels.expanded : kernels;
}

// One call among those that share a region. Steps are those of `kernels`.
struct Plan {
  Plan(const KernelTable& k,
       const StoreTable& s,
       const LinearCall& c,
       char* packed,
       float* expanded_scales,
       const Plan* before = nullptr)
      : source(k),
        kernels(multiplier_for(k, c.x.size(0))),
        stores(s),
        call(c),
        source_steps(expands() ? k.expanded_steps : 1),
        num_steps(c.weight.data.size(1) * source_steps),
        num_panels(c.weight.data.size(0)),
        tiles{c.x.size(0), ceil_div(c.x.size(0), kMaxTileRows)},
        blocks{tiles.parts, ceil_div(tiles.parts, kMaxBlockTiles)},
        packed_x(packed),
        x_group_scales(expanded_scales),
        first_tile(before == nullptr ? 0 : before->last_tile),
        last_tile(first_tile + tiles.parts),
        first_unit(before == nullptr ? 0 : before->last_unit),
        last_unit(first_unit + num_panels * blocks.parts) {}

  bool expands() const { return &kernels != &source; }
  // Bytes of `steps` steps of a panel as it is stored.
  int64_t packed_size(int64_t steps) const {
    return steps / source_steps * source.weight_step_size;
  }
  // Where step `step` of a panel is stored.
  const char* packed_steps(int64_t panel, int64_t step) const {
    return static_cast<const char*>(call.weight.data.raw_data()) + panel * packed_size(num_steps) +
           packed_size(step);
  }
  char* packed_row(int64_t row) const { return packed_x + row * num_steps * kernels.x_step_size; }

  const KernelTable& source;   // of the weight as it is stored
  const KernelTable& kernels;  // what multiplies
  const StoreTable& stores;
  const LinearCall& call;
  const int64_t source_steps;  // steps to one of `source`
  const int64_t num_steps;
  const int64_t num_panels;
  const EvenSplit tiles;   // rows of x
  const EvenSplit blocks;  // tiles
  char* const packed_x;    // tile after tile
  // The scales of an x that has its own for each group: [num_rows, groups]; else null.
  float* const x_group_scales;
  // This call's among those of all calls.
  const int64_t first_tile, last_tile;
  const int64_t first_unit, last_unit;
};

// Of rows [begin, end) of x.
void expand_group_scales(const Plan& plan, int64_t begin, int64_t end) {
  if (plan.x_group_scales == nullptr) return;
  const Tensor& scales = plan.call.x_scales;
  const int64_t size = scales.size(1);
  float* out = plan.x_group_scales;
  for (int64_t i = begin * size; i < end * size; ++i) {
    out[i] = scales.dtype() == DType::kUInt8 ? e8m0_to_float(scales.data<uint8_t>()[i])
                                             : scales.data<float>()[i];
  }
}

void pack_tile(const Plan& plan, int64_t tile) {
  const Tensor& x = plan.call.x;
  const int64_t begin = plan.tiles.begin(tile);
  const int64_t row_stride = x.stride(0) * dtype_size(x.dtype());
  plan.kernels.pack_x(static_cast<const char*>(x.raw_data()) + begin * row_stride,
                      row_stride,
                      static_cast<int>(plan.tiles.begin(tile + 1) - begin),
                      plan.call.weight.in_features,
                      plan.packed_row(begin));
  expand_group_scales(plan, begin, plan.tiles.begin(tile + 1));
}

// What a tile that is alone prefetches of its own panel: where the kernels do not say, as measured
// on Zen 4. The processor's own prefetcher does best by itself where a core is about as fast as its
// memory: at 3 and 4 rows, and at one where weights are expanded, which others can slow to half.
Prefetch stream_ahead(const Plan& plan, int rows, int unroll_lines, const char* from) {
  const LinearWeight& weight = plan.call.weight;
  if (plan.kernels.streams_unaided && !is_intel_cpu()) return {from, 0, false};
  const int ahead = plan.kernels.stream_ahead;
  if (ahead > 0) return {from + ahead, unroll_lines, false};
  if (!weight.is_quantized() && rows <= 2) return {from + 2048, unroll_lines, false};
  const bool leaves_it = weight.is_quantized() ? rows == 1 : rows <= 4;
  if (leaves_it) return {from, 0, false};
  return {from + 4096, unroll_lines, true};
}

// Of `panel` from `step` on, for rows from `row` on.
GroupScales group_scales(const Plan& plan, int64_t panel, int64_t step, int64_t row) {
  const LinearWeight& weight = plan.call.weight;
  const int64_t steps = weight.group_size / panel_step_size(weight) * plan.source_steps;
  const int64_t groups = num_groups(weight), group = step / steps;
  const auto* data = static_cast<const char*>(weight.scales.raw_data());
  GroupScales scales = {};
  scales.steps = steps;
  if (weight.scale_rows > 1) {
    scales.kind = GroupScales::kOne;
    scales.weight_stride = sizeof(float);
    data += panel * kPanelColumns / weight.scale_rows * groups * scales.weight_stride;
  } else {
    const DType dtype = weight.scales.dtype();
    scales.kind = dtype == DType::kUInt8 ? GroupScales::kE8M0 : GroupScales::kFloat32;
    scales.weight_stride = kPanelColumns * dtype_size(dtype);
    data += panel * groups * scales.weight_stride;
  }
  scales.weight = data + group * scales.weight_stride;
  if (plan.x_group_scales != nullptr) {
    scales.x = plan.x_group_scales + row * groups + group;
    scales.x_stride = groups;
  }
  return scales;
}

// What every tile of a block multiplies before the next steps come.
struct Chunk {
  int64_t panel, first_step, num_steps;
  const char* weight;  // as the kernels read it
  Prefetch prefetch;   // of the first tile; those of the others follow
};

void multiply_chunk(const Plan& plan, const Chunk& chunk, int64_t block, float* sums) {
  const KernelTable& kernels = plan.kernels;
  const int64_t tile_begin = plan.blocks.begin(block), tile_end = plan.blocks.begin(block + 1);
  Prefetch prefetch = chunk.prefetch;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t row = plan.tiles.begin(tile);
    const int rows = static_cast<int>(plan.tiles.begin(tile + 1) - row);
    const char* packed_x = plan.packed_row(row) + chunk.first_step * rows * kernels.x_step_size;
    if (plan.call.weight.has_groups()) {
      const GroupScales scales = group_scales(plan, chunk.panel, chunk.first_step, row);
      kernels.multiply_in_groups(
          rows, chunk.weight, packed_x, chunk.num_steps, sums, prefetch, scales);
    } else {
      kernels.multiply(rows, chunk.weight, packed_x, chunk.num_steps, sums, prefetch);
    }
    sums += rows * kPanelColumns;
    prefetch.from = static_cast<const char*>(prefetch.from) +
                    prefetch.lines * (chunk.num_steps / kStepUnroll) * kCacheLine;
  }
}

// A panel in one go, by a tile that is alone.
void stream_panel(const Plan& plan, int64_t panel, int64_t block, float* sums) {
  const char* weight = plan.packed_steps(panel, 0);
  const int lines = static_cast<int>(kStepUnroll * plan.kernels.weight_step_size / kCacheLine);
  const int rows = static_cast<int>(plan.tiles.total);
  const Prefetch prefetch = stream_ahead(plan, rows, lines, weight);
  multiply_chunk(plan, {panel, 0, plan.num_steps, weight, prefetch}, block, sums);
}

void multiply_block(const Plan& plan, int64_t panel, int64_t block, float* sums) {
  alignas(64) char expanded[kChunkSize];
  const int64_t num_tiles = plan.blocks.begin(block + 1) - plan.blocks.begin(block);
  const int64_t chunk_steps = kChunkSize / plan.kernels.weight_step_size;
  const int64_t unroll_size = kStepUnroll * plan.source.weight_step_size / plan.source_steps;
  const int share_lines = static_cast<int>(ceil_div(unroll_size / kCacheLine, num_tiles));
  for (int64_t step = 0; step < plan.num_steps; step += chunk_steps) {
    const int64_t steps = std::min(chunk_steps, plan.num_steps - step);
    const char* weight = plan.packed_steps(panel, step);
    const bool last_chunk = step + steps == plan.num_steps;
    const char* next = last_chunk && block + 1 < plan.blocks.parts
                           ? plan.packed_steps(panel, 0)
                           : weight + plan.packed_size(steps);
    if (plan.expands()) {
      plan.source.expand(weight, steps / plan.source_steps, expanded);
      weight = expanded;
    }
    multiply_chunk(plan, {panel, step, steps, weight, {next, share_lines, false}}, block, sums);
  }
}

void run_unit(const Plan& plan, int64_t unit) {
  alignas(64) float sums[kMaxBlockRows * kPanelColumns];
  const int64_t panel = unit / plan.blocks.parts;
  const int64_t block = unit % plan.blocks.parts;
  const int64_t row_begin = plan.tiles.begin(plan.blocks.begin(block));
  const int64_t row_end = plan.tiles.begin(plan.blocks.begin(block + 1));
  std::fill_n(sums, (row_end - row_begin) * kPanelColumns, 0.0f);
  if (plan.tiles.parts == 1 && plan.tiles.total <= plan.kernels.max_streaming_rows) {
    stream_panel(plan, panel, block, sums);
  } else {
    multiply_block(plan, panel, block, sums);
  }

  finish_panel(plan.call,
               {plan.stores, plan.kernels.unit, plan.kernels.integer_sums},
               panel,
               {row_begin, row_end},
               sums);
}

// In the order of their calls, of which none is without rows.
using Plans = std::span<const Plan>;

void pack_tiles(Plans plans, int64_t begin, int64_t end) {
  for (const Plan& plan : plans) {
    const int64_t last = std::min(end, plan.last_tile);
    for (int64_t tile = std::max(begin, plan.first_tile); tile < last; ++tile) {
      pack_tile(plan, tile - plan.first_tile);
    }
  }
}

void run_unit(Plans plans, int64_t unit) {
  const Plan& plan = *std::upper_bound(
      plans.begin(), plans.end(), unit, [](int64_t u, const Plan& p) { return u < p.last_unit; });
  run_unit(plan, unit - plan.first_unit);
}

void run_plans(const Stream& stream, Plans plans, int64_t num_rows) {
  const LinearWeight& weight = plans.front().call.weight;
  const int64_t num_tiles = plans.back().last_tile, num_units = plans.back().last_unit;
  ThreadPool& pool = stream.pool();
  const int64_t work = num_rows * weight.out_features * weight.in_features;
  const bool is_serial = pool.num_threads() == 1 || work < kMinParallelWork;
  if (is_serial || num_rows * weight.in_features < kMinParallelWork) {
    pack_tiles(plans, 0, num_tiles);
  } else {
    pool.parallel_for(
        num_tiles, 1, [&](int64_t begin, int64_t end) { pack_tiles(plans, begin, end); });
  }
  if (is_serial) {
    for (int64_t unit = 0; unit < num_units; ++unit) run_unit(plans, unit);
    return;
  }
  RunClaims claims(num_units, pool.num_active());
  pool.share([&](int worker) {
    for (int64_t unit = claims.claim(worker); unit >= 0; unit = claims.claim(worker)) {
      run_unit(plans, unit);
    }
  });
}

// Whether the weight is expanded or not.
int64_t packed_row_size(const KernelTable& kernels, const LinearCall& call) {
  const int64_t expanded_size =
      kernels.expanded == nullptr ? 0 : kernels.expanded_steps * kernels.expanded->x_step_size;
  return call.weight.data.size(1) * std::max(kernels.x_step_size, expanded_size);
}

}  // namespace

void linear_panels(const KernelTable& kernels,
                   const StoreTable& stores,
                   const Stream& stream,
                   std::span<const LinearCall> calls,
                   Workspace& scratch) {
  CHECK(kernels.pack_x != nullptr);
  Workspace::Scope scope(scratch);
  int64_t num_rows = 0;
  for (const LinearCall& call : calls) num_rows += call.x.size(0);
  const int64_t row_size = packed_row_size(kernels, calls.front());
  const int64_t groups = has_group_scales(calls.front()) ? num_groups(calls.front().weight) : 0;
  const Tensor packed_x = scratch.tensor({num_rows * row_size}, DType::kUInt8);
  const Tensor x_scales = scratch.tensor({num_rows * groups}, DType::kFloat32);
  if (stream.is_dry_run()) return;
  char* packed = static_cast<char*>(packed_x.raw_data());
  float* scales = groups > 0 ? x_scales.data<float>() : nullptr;
  if (calls.size() == 1) {
    const Plan plan(kernels, stores, calls.front(), packed, scales);
    return run_plans(stream, {&plan, 1}, num_rows);
  }
  std::vector<Plan> plans;
  plans.reserve(calls.size());
  for (const LinearCall& call : calls) {
    const Plan* before = plans.empty() ? nullptr : &plans.back();
    plans.emplace_back(kernels, stores, call, packed, scales, before);
    packed += call.x.size(0) * row_size;
    if (scales != nullptr) scales += call.x.size(0) * groups;
  }
  run_plans(stream, plans, num_rows);
}

}  // namespace atom::ops
