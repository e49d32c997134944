// Inside decode attention of a fixed order: which keys of which rows a warp computes, found on the
// device.
//
// A row is a sequence with a single query; a head item is up to kFixedHeads query heads of one KV
// head. Units are tiles of keys for as many head items as a share has warps, which thus read the
// cache in long runs; they are numbered row by row, within a row by groups of head items. All
// shares have about as many. Where one ends within a row, the row is cut at the segment's
// beginning.
#pragma once

#include "ops/attention/decode/plan.cuh"
#include "ops/attention/fixed/order.cuh"

namespace atom::ops::attention_device {

constexpr int kFixedWarps = 8;  // of a block
constexpr int kFixedHeads = 8;  // query heads of an item, at most

struct FixedDecodeArgs {
  AttentionArgs params;
  int heads_per_kv_head;  // query heads
  int heads_per_item;     // at most kFixedHeads
  int items_per_kv_head;  // to cover its query heads
  int warps_log2;         // of a share
  int places_per_warp;    // for a row's beginning, and for segments of another row
  float2* softmax;        // [places, heads_per_item] maximum and sum
  float* out;             // [places, heads_per_item, head_dim]
  int32_t* counters;      // [num_sequences, head items] finished tiles of rows that are cut

  __host__ __device__ int head_items() const { return params.num_kv_heads * items_per_kv_head; }
};

struct FixedPlan {
  int num_groups;  // of head items
  int num_units;
  int units_per_share;
  int longer_shares;  // the first ones, of a unit more
  // The row of the first unit of each share of the block, and that row's first unit.
  int row[kFixedWarps];
  int row_begin[kFixedWarps];

  __device__ int begin_of(int share) const {
    return share * units_per_share + min(share, longer_shares);
  }
  __device__ int share_of(int unit) const {
    const int in_longer = longer_shares * (units_per_share + 1);
    return unit < in_longer ? unit / (units_per_share + 1)
                            : longer_shares + (unit - in_longer) / units_per_share;
  }
};

// All threads of the block call it.
__device__ inline const FixedPlan& make_fixed_plan(const FixedDecodeArgs& args) {
  __shared__ FixedPlan plan;
  __shared__ int scratch[kFixedWarps];
  constexpr int kThreads = kFixedWarps * 32;
  const int num_rows = args.params.num_sequences;
  const int rows_per_thread = (num_rows + kThreads - 1) / kThreads;
  const int row_begin = min(num_rows, static_cast<int>(threadIdx.x) * rows_per_thread);
  const int row_end = min(num_rows, row_begin + rows_per_thread);
  const auto tiles_of = [&](int row) {
    return keys_of_row<kFixedTileKeys>(args.params, row).num_tiles;
  };
  int tiles = 0;
  for (int row = row_begin; row < row_end; ++row) {
    tiles += tiles_of(row);
  }
  int total;
  const int before = sum_before<kFixedWarps>(tiles, scratch, total);
  const int num_groups = args.head_items() >> args.warps_log2;
  const int shares_log2 = __ffs(kFixedWarps) - 1 - args.warps_log2;
  const int num_shares = static_cast<int>(gridDim.x) << shares_log2;
  if (threadIdx.x == 0) {
    plan.num_groups = num_groups;
    plan.num_units = total * num_groups;
    plan.units_per_share = plan.num_units / num_shares;
    plan.longer_shares = plan.num_units - plan.units_per_share * num_shares;
  }
  __syncthreads();
  for (int i = 0; i < 1 << shares_log2; ++i) {
    const int unit = plan.begin_of((static_cast<int>(blockIdx.x) << shares_log2) + i);
    int first_unit = before * num_groups;
    // The thread that has its row.
    if (unit < first_unit || unit >= first_unit + tiles * num_groups) {
      continue;
    }
    int row = row_begin;
    for (int units; unit >= first_unit + (units = tiles_of(row) * num_groups); ++row) {
      first_unit += units;
    }
    plan.row[i] = row;
    plan.row_begin[i] = first_unit;
  }
  __syncthreads();
  return plan;
}

// The tile at which a row is cut that has `offset` tiles before the border of two shares.
__device__ inline int cut_of(const RowKeys& keys, int offset) {
  if (offset <= 0) {
    return keys.first_tile;
  }
  if (offset >= keys.num_tiles) {
    return keys.first_tile + keys.num_tiles;
  }
  const int segment = segment_of_key((keys.first_tile + offset) * kFixedTileKeys);
  return max(keys.first_tile, first_key_of_segment(segment) / kFixedTileKeys);
}

// A range of one row's tiles for the head item of one warp.
struct alignas(16) FixedItem {
  int row;  // negative: there are no more items
  int head_item;
  int kv_head;
  int first_head;
  int num_heads;
  int group_begin;  // the first unit of the row's keys for these head items
  int first_tile;
  int last_tile;  // one behind
  RowKeys keys;   // all of the row

  __device__ bool is_end() const { return row < 0; }
  __device__ bool has_begin() const { return first_tile == keys.first_tile; }
  __device__ bool is_whole() const {
    return has_begin() && last_tile == keys.first_tile + keys.num_tiles;
  }
};

// A warp's items, one after another. By whole warps.
class FixedWalk {
 public:
  __device__ FixedWalk(const FixedDecodeArgs& args, const FixedPlan& plan)
      : args_(args), plan_(plan), team_((threadIdx.x / 32) & ((1 << args.warps_log2) - 1)) {
    const int share_in_block = static_cast<int>(threadIdx.x / 32) >> args.warps_log2;
    const int shares_per_block = kFixedWarps >> args.warps_log2;
    share_ = static_cast<int>(blockIdx.x) * shares_per_block + share_in_block;
    unit_ = plan.begin_of(share_);
    end_ = plan.begin_of(share_ + 1);
    if (unit_ < end_) {
      row_ = plan.row[share_in_block];
      row_begin_ = plan.row_begin[share_in_block];
      keys_ = keys_of_row<kFixedTileKeys>(args.params, row_);
    }
  }

  // Behind the last item one of no row and no keys, for ever.
  __device__ void next(FixedItem& item) {
    while (unit_ < end_) {
      if (unit_ - row_begin_ >= keys_.num_tiles * plan_.num_groups) {
        find_row();
      }
      const int group = plan_.num_groups == 1 ? 0 : (unit_ - row_begin_) / keys_.num_tiles;
      const int group_begin = row_begin_ + group * keys_.num_tiles;
      item.row = row_;
      item.keys = keys_;
      item.group_begin = group_begin;
      item.first_tile = cut_of(keys_, unit_ - group_begin);
      item.last_tile = cut_of(keys_, end_ - group_begin);
      item.head_item = (group << args_.warps_log2) + team_;
      item.kv_head =
          args_.items_per_kv_head == 1 ? item.head_item : item.head_item / args_.items_per_kv_head;
      const int head_of_group =
          (item.head_item - item.kv_head * args_.items_per_kv_head) * args_.heads_per_item;
      item.first_head = item.kv_head * args_.heads_per_kv_head + head_of_group;
      item.num_heads = min(args_.heads_per_item, args_.heads_per_kv_head - head_of_group);
      unit_ = min(end_, group_begin + keys_.num_tiles);
      if (item.first_tile < item.last_tile) {
        return;
      }
    }
    item = {.row = -1};
  }

  __device__ int share() const { return share_; }
  __device__ int team() const { return team_; }

 private:
  // The row of unit_, which lies behind this one.
  __device__ void find_row() {
    row_begin_ += keys_.num_tiles * plan_.num_groups;
    ++row_;
    while (true) {
      const int lane = threadIdx.x & 31;
      const int row = row_ + lane;
      const int units =
          row < args_.params.num_sequences
              ? keys_of_row<kFixedTileKeys>(args_.params, row).num_tiles * plan_.num_groups
              : 0;
      int before = units;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const int lower = __shfl_up_sync(kAllLanes, before, offset);
        before += lane >= offset ? lower : 0;
      }
      const int total = __shfl_sync(kAllLanes, before, 31);
      before -= units;
      if (unit_ < row_begin_ + total) {
        const uint32_t not_behind = __ballot_sync(kAllLanes, row_begin_ + before <= unit_);
        const int last = 31 - __clz(not_behind);
        row_begin_ += __shfl_sync(kAllLanes, before, last);
        row_ += last;
        break;
      }
      row_begin_ += total;
      row_ += 32;
    }
    keys_ = keys_of_row<kFixedTileKeys>(args_.params, row_);
  }

  const FixedDecodeArgs& args_;
  const FixedPlan& plan_;
  const int team_;  // the warp in its share
  int share_;
  int unit_;
  int end_;       // of the share
  int row_ = -1;  // none yet
  int row_begin_ = 0;
  RowKeys keys_ = {};
};

}  // namespace atom::ops::attention_device
