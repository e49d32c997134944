// Inside decode attention: which tiles of which rows a warp computes, found on the device.
//
// A row is a sequence with a single query; its visible keys are taken in tiles of kKeys that begin
// at multiples of kKeys. A head item is up to kRows query heads of one KV head. The warps of a
// block form teams of `slices` warps: a team has one head item and its warps every slices-th tile.
// Teams of a block have consecutive head items of the same keys, so that the block reads the cache
// in long runs; but no row's keys are to be in more than max_parts blocks, whose results somebody
// has to join. A unit is one tile for each warp of a team, for all teams of a block.
//
// Rows of about a length are cut alike instead: each team takes whole head items, a round of them
// after the other, and blocks have nothing to join. Where there are fewer head items than blocks,
// one team, the whole block, takes one of `splits` parts of a head item.
#pragma once

#include <cstdint>

#include "ops/attention/device/visible_keys.h"
#include "ops/attention/device/work.cuh"

namespace atom::ops::attention_device {

// The fewest keys of a fixed split, and the most splits of a row.
constexpr int kFixedSplitKeys = 512;
constexpr int kMaxFixedSplits = 32;

// Parts that are joined together first where a row with even splits has more than twice as many.
constexpr int kPartsOfGroup = 8;

struct DecodeArgs {
  AttentionArgs params;
  bool fixed_splits;      // rows are cut by their length alone
  int max_parts;          // see above; not of fixed splits
  int even_splits;        // of every row, if they are of about a length; 0: they are cut in shares
  int max_even_teams;     // of a block that takes whole head items
  int shares_tiles;       // of a warp, that take as long as the plan and the joins of shares
  int heads_per_kv_head;  // query heads
  int heads_per_item;     // at most kRows
  int items_per_kv_head;  // to cover its query heads
  int num_groups;         // of the parts of a row with even splits, at most; 0: they are few
  int max_splits;         // of a row, with fixed splits
  int cluster_log2;       // of its blocks where each head item has a cluster in FewRows, or 0
  float2* partial_softmax;  // [parts, heads_per_item] maximum and sum
  float* partial_out;       // [parts, heads_per_item, head_dim]
  // [num_sequences, head items] finished parts, or groups of them, then of each group's parts
  // [num_sequences, head items, num_groups]
  int32_t* counters;

  __host__ __device__ int head_items() const { return params.num_kv_heads * items_per_kv_head; }
  // `place`: of a row's head item.
  __device__ int32_t* group_counter(int64_t place, int group) const {
    return counters + int64_t{params.num_sequences} * head_items() + place * num_groups + group;
  }
};

// The keys that a row's query sees.
struct RowKeys {
  int token;
  int seq_len;
  int settled_len;
  int first_key;
  int first_tile;
  int num_tiles;  // 0: not a row
};

template <int kKeys>
__device__ RowKeys keys_of_row(const AttentionArgs& params, int row) {
  RowKeys keys;
  keys.seq_len = params.seq_lens[row];
  keys.settled_len = params.settled_lens == nullptr ? 0 : params.settled_lens[row];
  keys.token = params.query_start[row];
  const bool single = params.query_start[row + 1] - keys.token == 1;
  keys.first_key = first_visible_key(keys.seq_len - 1, params.sliding_window);
  keys.first_tile = keys.first_key / kKeys;
  keys.num_tiles =
      single && keys.seq_len > 0 ? (keys.seq_len + kKeys - 1) / kKeys - keys.first_tile : 0;
  return keys;
}

// Tiles of a fixed split.
template <int kKeys>
__device__ int fixed_split_tiles(int num_tiles) {
  int tiles = kFixedSplitKeys / kKeys;
  while (tiles * kMaxFixedSplits < num_tiles) {
    tiles *= 2;
  }
  return tiles;
}

// The shares of the batch's units, one for each block, all of about a length. Units are numbered
// row by row, within a row by groups of head items.
struct Plan {
  int slices_log2;
  int even_splits;  // 0: in shares
  int num_groups;   // of head items
  int units_per_share;
  int longer_shares;  // the first ones, of a unit more
  int num_units;      // of all shares
  int row;            // of the own share's first unit
  int row_begin;      // first unit of that row

  __device__ int begin_of(int share) const {
    return share * units_per_share + min(share, longer_shares);
  }
  __device__ int share_of(int unit) const {
    const int in_longer = longer_shares * (units_per_share + 1);
    return unit < in_longer ? unit / (units_per_share + 1)
                            : longer_shares + (unit - in_longer) / units_per_share;
  }
};

// Units of a row of so many tiles, for each group of head items.
template <int kKeys>
__device__ int units_of(const DecodeArgs& args, const Plan& plan, int num_tiles) {
  if (args.fixed_splits) {
    const int split_tiles = fixed_split_tiles<kKeys>(num_tiles);
    return (num_tiles + split_tiles - 1) / split_tiles;
  }
  return (num_tiles + (1 << plan.slices_log2) - 1) >> plan.slices_log2;
}

// The sum over the threads of the block before this one; `total` is that of all threads.
template <int kWarps>
__device__ int sum_before(int value, int* scratch, int& total) {
  const int lane = threadIdx.x & 31;
  int inclusive = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int lower = __shfl_up_sync(kAllLanes, inclusive, offset);
    inclusive += lane >= offset ? lower : 0;
  }
  if (lane == 31) {
    scratch[threadIdx.x / 32] = inclusive;
  }
  __syncthreads();
  int before = inclusive - value;
  total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    before += warp < static_cast<int>(threadIdx.x / 32) ? scratch[warp] : 0;
    total += scratch[warp];
  }
  return before;
}

// Fewest warps to a team, which is most teams to a block, that max_parts allows.
template <int kWarps>
__device__ int slices_log2_of(const DecodeArgs& args, int total_tiles, int max_tiles) {
  constexpr int kWarpsLog2 = kWarps == 8 ? 3 : 2;
  static_assert(1 << kWarpsLog2 == kWarps);
  int slices_log2 = kWarpsLog2;
  if (args.fixed_splits) {
    return slices_log2;
  }
  const int items = args.head_items();
  while (slices_log2 > 0) {
    const int teams = kWarps >> (slices_log2 - 1);
    const bool joinable =
        int64_t{max_tiles} * gridDim.x * teams <= int64_t{total_tiles} * items * args.max_parts;
    if ((items & (teams - 1)) != 0 || !joinable) {
      break;
    }
    --slices_log2;
  }
  return slices_log2;
}

// Tiles of each part of a row but the last one: no fewer than one for each warp.
template <int kWarps>
__device__ int even_part_tiles(int num_tiles, int splits) {
  return (num_tiles + splits * kWarps - 1) / (splits * kWarps) * kWarps;
}

// Sixteenths of a full round's time that so many rounds take. Fewer blocks share the bandwidth of
// the last one: a share x of them takes about 4x / (3x + 1) of the time, by measurements.
__device__ inline int rounds_16(int places, int blocks) {
  const int full = places / blocks;
  const int rest = places - full * blocks;
  return full * 16 + rest * 64 / (rest * 3 + blocks);
}

// How rows of about a length are cut alike: with the slices that take least, and of equal ones the
// most teams. Its even_splits are 0 where shares take less. By whole warps.
template <int kWarps>
__device__ Plan even_plan(const DecodeArgs& args, int total_tiles, int max_tiles) {
  constexpr int kEndTiles = 1;  // as long as an item's end takes
  constexpr int kNever = 1 << 30;
  const int items = args.head_items();
  const int splits = args.even_splits;
  Plan plan = {};
  if (splits == 0) {
    return plan;
  }
  // Each lane looks at slices of its own.
  const int slices_log2 = threadIdx.x & 31;
  const int teams = kWarps >> slices_log2;
  const bool fits = teams == 1 || (teams > 1 && teams <= args.max_even_teams && splits == 1 &&
                                   (items & (teams - 1)) == 0);
  const int blocks = static_cast<int>(gridDim.x);
  int time = kNever;
  if (fits) {
    const int part_tiles = min(max_tiles, even_part_tiles<kWarps>(max_tiles, splits));
    const int warp_tiles = (part_tiles + (1 << slices_log2) - 1) >> slices_log2;
    const int places = args.params.num_sequences * splits * (items / teams);
    time = rounds_16(places, blocks) * (warp_tiles + kEndTiles) * 4 + slices_log2;
  }
  const int best = __reduce_min_sync(kAllLanes, time);
  if (int64_t{best / 4 - 16 * (kEndTiles + args.shares_tiles)} * blocks * kWarps <=
      int64_t{16} * total_tiles * items) {
    plan.slices_log2 = best % 4;
    plan.even_splits = splits;
    plan.num_groups = items / (kWarps >> plan.slices_log2);
  }
  return plan;
}

// All threads of the block call it, whose number is kWarps * 32.
template <int kKeys, int kWarps>
__device__ const Plan& make_plan(const DecodeArgs& args) {
  __shared__ Plan shared;
  __shared__ int scratch[3][kWarps];
  constexpr int kThreads = kWarps * 32;
  const int num_rows = args.params.num_sequences;
  const int rows_per_thread = (num_rows + kThreads - 1) / kThreads;
  const int row_begin = min(num_rows, static_cast<int>(threadIdx.x) * rows_per_thread);
  const int row_end = min(num_rows, row_begin + rows_per_thread);

  int tiles = 0;
  int max_tiles = 0;
  for (int row = row_begin; row < row_end; ++row) {
    const int of_row = keys_of_row<kKeys>(args.params, row).num_tiles;
    tiles += of_row;
    max_tiles = max(max_tiles, of_row);
  }
  int total_tiles = __reduce_add_sync(kAllLanes, tiles);
  max_tiles = __reduce_max_sync(kAllLanes, max_tiles);
  if (threadIdx.x % 32 == 0) {
    scratch[0][threadIdx.x / 32] = total_tiles;
    scratch[1][threadIdx.x / 32] = max_tiles;
  }
  __syncthreads();
  total_tiles = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    total_tiles += scratch[0][warp];
    max_tiles = max(max_tiles, scratch[1][warp]);
  }
  Plan plan = even_plan<kWarps>(args, total_tiles, max_tiles);
  if (plan.even_splits > 0) {
    if (threadIdx.x == 0) {
      shared = plan;
    }
    __syncthreads();
    return shared;
  }
  plan.slices_log2 = slices_log2_of<kWarps>(args, total_tiles, max_tiles);
  plan.num_groups = args.head_items() >> (__ffs(kWarps) - 1 - plan.slices_log2);

  const auto units_of_row = [&](int row) {
    const int of_row =
        rows_per_thread == 1 ? tiles : keys_of_row<kKeys>(args.params, row).num_tiles;
    return plan.num_groups * units_of<kKeys>(args, plan, of_row);
  };
  int units = 0;
  for (int row = row_begin; row < row_end; ++row) {
    units += units_of_row(row);
  }
  int first_unit = sum_before<kWarps>(units, scratch[2], plan.num_units);
  plan.units_per_share = plan.num_units / static_cast<int>(gridDim.x);
  plan.longer_shares = plan.num_units - plan.units_per_share * static_cast<int>(gridDim.x);
  const int own_unit = plan.begin_of(blockIdx.x);
  // The thread that has the row of the block's first unit.
  if (first_unit <= own_unit && own_unit < first_unit + units) {
    int row = row_begin;
    while (own_unit >= first_unit + units_of_row(row)) {
      first_unit += units_of_row(row);
      ++row;
    }
    plan.row = row;
    plan.row_begin = first_unit;
    shared = plan;
  } else if (own_unit == plan.num_units && threadIdx.x == 0) {
    shared = plan;  // without a share
  }
  __syncthreads();
  return shared;
}

}  // namespace atom::ops::attention_device
