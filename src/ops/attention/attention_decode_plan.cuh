// Inside decode attention: which tiles of which rows a warp computes, found on the device.
//
// A row is a sequence with a single query; its visible keys are taken in tiles of kKeys that begin
// at multiples of kKeys. A head item is up to kRows query heads of one KV head. The warps of a
// block form teams of `slices` warps: a team has one head item and its warps every slices-th tile.
// Teams of a block have consecutive head items of the same keys, so that the block reads the cache
// in long runs; but no row's keys are to be in more than max_parts blocks, whose results somebody
// has to join. A unit is one tile for each warp of a team, for all teams of a block.
#pragma once

#include <cstdint>

#include "ops/attention/attention_gpu.h"
#include "ops/attention/attention_work.cuh"

namespace atom::ops::attention_device {

// Of fixed splits: the fewest keys, and the most splits of a row.
constexpr int kFixedSplitKeys = 512;
constexpr int kMaxFixedSplits = 32;

struct DecodeArgs {
  AttentionGpuParams params;
  bool fixed_splits;        // rows are cut by their length alone
  int max_parts;            // see above; not of fixed splits
  int heads_per_item;       // query heads, at most kRows
  int items_per_kv_head;    // to cover its query heads
  int max_splits;           // of a row, with fixed splits
  float2* partial_softmax;  // [parts, heads_per_item] maximum and sum
  float* partial_out;       // [parts, heads_per_item, head_dim]
  int32_t* counters;        // [num_sequences, head items] finished parts

  __host__ __device__ int head_items() const { return params.num_kv_heads * items_per_kv_head; }
};

// The keys that a row's query sees.
struct RowKeys {
  int seq_len;
  int first_key;
  int first_tile;
  int num_tiles;  // 0: not a row
};

template <int kKeys>
__device__ RowKeys keys_of_row(const AttentionGpuParams& params, int row) {
  RowKeys keys;
  keys.seq_len = params.seq_lens[row];
  const bool single = params.query_start[row + 1] - params.query_start[row] == 1;
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

// The block's share of the batch: units unit_begin .. unit_end - 1, numbered row by row, within a
// row by groups of head items.
struct Plan {
  int units_per_block;  // at least
  int longer_blocks;
  int unit_begin;
  int unit_end;
  int slices_log2;
  int num_groups;  // of head items
  int row;         // of unit_begin
  int row_begin;   // first unit of that row

  // Blocks have equally many units, the first ones one more.
  __device__ int begin_of(int block) const {
    return block * units_per_block + min(block, longer_blocks);
  }
  __device__ int block_of(int unit) const {
    const int in_longer = longer_blocks * (units_per_block + 1);
    return unit < in_longer ? unit / (units_per_block + 1)
                            : longer_blocks + (unit - in_longer) / units_per_block;
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
    if (items % teams != 0 || !joinable) {
      break;
    }
    --slices_log2;
  }
  return slices_log2;
}

// By all threads of the block, whose number is kWarps * 32.
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
  int num_units;
  int first_unit = sum_before<kWarps>(units, scratch[1], num_units);
  const int num_blocks = gridDim.x;
  plan.units_per_block = num_units / num_blocks;
  plan.longer_blocks = num_units - plan.units_per_block * num_blocks;
  plan.unit_begin = plan.begin_of(blockIdx.x);
  plan.unit_end = plan.begin_of(blockIdx.x + 1);
  // The thread that has the row of the block's first unit.
  if (first_unit <= plan.unit_begin && plan.unit_begin < first_unit + units) {
    plan.row = row_begin;
    while (plan.unit_begin >= first_unit + units_of_row(plan.row)) {
      first_unit += units_of_row(plan.row);
      ++plan.row;
    }
    plan.row_begin = first_unit;
    shared = plan;
  } else if (plan.unit_begin == num_units && threadIdx.x == 0) {
    shared = plan;  // without units
  }
  __syncthreads();
  return shared;
}

// A range of one row's keys for the head item of one team.
struct Item {
  int row;
  int head_item;
  int kv_head;
  int first_head;
  int num_heads;
  int seq_len;
  int first_key;
  int first_tile;
  int last_tile;    // one behind
  int group_begin;  // units of the row for this group of head items
  int group_units;
  int unit;  // the first one of the item, within the group
};

// A team's items, one after another.
template <int kKeys, int kWarps>
class ItemWalk {
 public:
  __device__ ItemWalk(const DecodeArgs& args, const Plan& plan)
      : args_(args), plan_(plan), unit_(plan.unit_begin) {
    if (unit_ < plan.unit_end) {
      row_ = plan.row;
      row_begin_ = plan.row_begin;
      enter_row();
    }
  }

  // False when there are no more.
  __device__ bool next(Item& item) {
    const int end = plan_.unit_end;
    if (unit_ >= end) {
      return false;
    }
    while (unit_ - row_begin_ >= group_units_ * plan_.num_groups) {
      row_begin_ += group_units_ * plan_.num_groups;
      ++row_;
      enter_row();
    }
    const int group = (unit_ - row_begin_) / group_units_;
    item.row = row_;
    item.group_begin = row_begin_ + group * group_units_;
    item.group_units = group_units_;
    item.unit = unit_ - item.group_begin;
    const int units = args_.fixed_splits ? 1 : min(group_units_ - item.unit, end - unit_);
    item.seq_len = keys_.seq_len;
    item.first_key = keys_.first_key;
    item.first_tile = keys_.first_tile + item.unit * unit_tiles_;
    item.last_tile = min(item.first_tile + units * unit_tiles_, keys_.first_tile + keys_.num_tiles);
    const int team = (threadIdx.x / 32) >> plan_.slices_log2;
    item.head_item = group * (kWarps >> plan_.slices_log2) + team;
    item.kv_head = item.head_item / args_.items_per_kv_head;
    const int heads = args_.params.num_heads / args_.params.num_kv_heads;
    const int head_of_group =
        (item.head_item - item.kv_head * args_.items_per_kv_head) * args_.heads_per_item;
    item.first_head = item.kv_head * heads + head_of_group;
    item.num_heads = min(args_.heads_per_item, heads - head_of_group);
    unit_ += units;
    return true;
  }

 private:
  __device__ void enter_row() {
    keys_ = keys_of_row<kKeys>(args_.params, row_);
    unit_tiles_ =
        args_.fixed_splits ? fixed_split_tiles<kKeys>(keys_.num_tiles) : 1 << plan_.slices_log2;
    group_units_ = units_of<kKeys>(args_, plan_, keys_.num_tiles);
  }

  const DecodeArgs& args_;
  const Plan& plan_;
  int unit_;
  int row_ = 0;
  int row_begin_ = 0;
  RowKeys keys_ = {};
  int unit_tiles_ = 0;
  int group_units_ = 0;
};

// Where the results of an item's row and head item are that are to be joined.
struct Parts {
  int count;
  int first;  // place of part 0
  int base;   // of part i > 0: base + i * stride
  int stride;
  int own;  // of this block

  __device__ int place(int part) const { return part == 0 ? first : base + part * stride; }
};

template <int kWarps>
__device__ Parts parts_of(const DecodeArgs& args, const Plan& plan, const Item& item) {
  Parts parts;
  if (args.fixed_splits) {
    parts.count = item.group_units;
    parts.stride = 1;
    parts.base = (item.row * args.head_items() + item.head_item) * args.max_splits;
    parts.first = parts.base;
    parts.own = parts.base + item.unit;
    return parts;
  }
  // A block has at most two parts: its first item, and its last one.
  const int team = (threadIdx.x / 32) >> plan.slices_log2;
  const int first_block = plan.block_of(item.group_begin);
  parts.count = plan.block_of(item.group_begin + item.group_units - 1) - first_block + 1;
  parts.stride = 2 * kWarps;
  parts.base = first_block * parts.stride + team;
  parts.first = parts.base + (plan.begin_of(first_block) < item.group_begin ? kWarps : 0);
  parts.own = parts.place(static_cast<int>(blockIdx.x) - first_block);
  return parts;
}

}  // namespace atom::ops::attention_device
