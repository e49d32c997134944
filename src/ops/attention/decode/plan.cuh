// Inside decode attention: which tiles of which rows a warp computes, found on the device.
//
// A row is a sequence with a single query; its visible keys are taken in tiles of kKeys that begin
// at multiples of kKeys. A head item is up to kRows query heads of one KV head. The warps of a
// block form teams of `slices` warps: a team has one head item and its warps every slices-th tile.
// Teams of a block have consecutive head items of the same keys, so that the block reads the cache
// in long runs; but no row's keys are to be in more than max_parts blocks, whose results somebody
// has to join. A unit is one tile for each warp of a team, for all teams of a block.
//
// For few rows of about a length there is nothing to find out: one team, the whole block, takes a
// row's head item or one of `splits` parts of it, and as many rounds of them as there are.
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
  int heads_per_kv_head;  // query heads
  int heads_per_item;     // at most kRows
  int items_per_kv_head;  // to cover its query heads
  int num_groups;         // of the parts of a row with even splits, at most
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

constexpr int kMaxEvenRows = 32;  // a lane each

// The keys of row `lane`.
template <int kKeys>
__device__ RowKeys keys_of_lane(const AttentionArgs& params) {
  const int lane = threadIdx.x & 31;
  return lane < params.num_sequences ? keys_of_row<kKeys>(params, lane) : RowKeys{};
}

// Tiles of each part of a row but the last one: no fewer than one for each warp.
template <int kWarps>
__device__ int even_part_tiles(int num_tiles, int splits) {
  return (num_tiles + splits * kWarps - 1) / (splits * kWarps) * kWarps;
}

// Whether a block's warps take hardly more tiles with even splits than with shares, whose plan and
// joins take as long as a few tiles.
template <int kKeys, int kWarps>
__device__ bool are_even(const DecodeArgs& args) {
  constexpr int kMoreTiles = 2;
  if (args.even_splits == 0) {
    return false;
  }
  const int tiles = keys_of_lane<kKeys>(args.params).num_tiles;
  const int max_tiles = __reduce_max_sync(kAllLanes, tiles);
  const int64_t total_tiles = __reduce_add_sync(kAllLanes, tiles);
  const int blocks = static_cast<int>(gridDim.x);
  const int places = args.params.num_sequences * args.head_items() * args.even_splits;
  const int rounds = (places + blocks - 1) / blocks;
  const int even = rounds * even_part_tiles<kWarps>(max_tiles, args.even_splits);
  return int64_t{even - kMoreTiles * kWarps} * blocks <= total_tiles * args.head_items();
}

// All threads of the block call it, whose number is kWarps * 32.
template <int kKeys, int kWarps>
__device__ const Plan& make_plan(const DecodeArgs& args) {
  __shared__ Plan shared;
  if (are_even<kKeys, kWarps>(args)) {
    if (threadIdx.x == 0) {
      shared.slices_log2 = kWarps == 8 ? 3 : 2;
      shared.even_splits = args.even_splits;
    }
    __syncthreads();
    return shared;
  }
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
  max_tiles = __reduce_max_sync(kAllLanes, max_tiles);
  if (threadIdx.x % 32 == 0) {
    scratch[2][threadIdx.x / 32] = max_tiles;
  }
  int total_tiles;
  sum_before<kWarps>(tiles, scratch[0], total_tiles);
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    max_tiles = max(max_tiles, scratch[2][warp]);
  }
  Plan plan;
  plan.even_splits = 0;
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
  int first_unit = sum_before<kWarps>(units, scratch[1], plan.num_units);
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
