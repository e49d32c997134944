// Inside decode attention: from shares of units to a team's items, and where their results go.
#pragma once

#include "ops/attention/decode/plan.cuh"

namespace atom::ops::attention_device {

// Where the results of an item's row and head item are that are to be joined.
struct Parts {
  int count;
  int first;  // place of part 0
  int base;   // of part i > 0: base + i * stride
  int stride;
  int own;  // of this block

  __device__ int place(int part) const { return part == 0 ? first : base + part * stride; }
};

// A range of one row's keys for the head item of one team.
struct alignas(16) Item {
  int row;  // negative: there are no more items
  int token;
  int head_item;
  int kv_head;
  int first_head;
  int num_heads;
  int seq_len;
  int settled_len;
  int first_key;
  int first_tile;
  int last_tile;  // one behind
  Parts parts;

  __device__ bool is_end() const { return row < 0; }
};

__device__ inline void set_heads(const DecodeArgs& args, Item& item, int head_item) {
  item.head_item = head_item;
  item.kv_head = args.items_per_kv_head == 1 ? head_item : head_item / args.items_per_kv_head;
  const int head_of_group =
      (head_item - item.kv_head * args.items_per_kv_head) * args.heads_per_item;
  item.first_head = item.kv_head * args.heads_per_kv_head + head_of_group;
  item.num_heads = min(args.heads_per_item, args.heads_per_kv_head - head_of_group);
}

// A team's items, one after another. By whole warps. Rows' lengths are near once the plan has read
// them: each item asks for its row's again, since registers are few.
template <int kKeys, int kWarps>
class ItemWalk {
 public:
  __device__ ItemWalk(const DecodeArgs& args, const Plan& plan) : args_(args), plan_(plan) {
    if (plan.even_splits > 0) {
      unit_ = blockIdx.x;
      end_ = args.params.num_sequences * plan.num_groups * plan.even_splits;
      return;
    }
    unit_ = plan.begin_of(blockIdx.x);
    end_ = plan.begin_of(blockIdx.x + 1);
    row_ = plan.row;
    row_begin_ = plan.row_begin;
  }

  // Behind the last item one of no row and no keys, for ever.
  __device__ void next(Item& item) {
    if (plan_.even_splits > 0) {
      return next_even(item);
    }
    if (unit_ >= end_) {
      item = {.row = -1};
      return;
    }
    if (unit_ >= row_end_) {
      find_row();
    }
    const RowKeys keys = keys_of_row<kKeys>(args_.params, row_);
    const int group_units = units_of<kKeys>(args_, plan_, keys.num_tiles);
    row_end_ = row_begin_ + group_units * plan_.num_groups;
    const int group = plan_.num_groups == 1 ? 0 : (unit_ - row_begin_) / group_units;
    const int group_begin = row_begin_ + group * group_units;
    const int unit = unit_ - group_begin;
    const int units = args_.fixed_splits ? 1 : min(group_units - unit, end_ - unit_);
    const int unit_tiles =
        args_.fixed_splits ? fixed_split_tiles<kKeys>(keys.num_tiles) : 1 << plan_.slices_log2;
    set_keys(item, keys, unit * unit_tiles, (unit + units) * unit_tiles);
    set_heads(args_, item, group * (kWarps >> plan_.slices_log2) + team());
    item.parts = args_.fixed_splits ? parts_of_fixed(item, unit, group_units)
                                    : parts_of_shares(group_begin, group_units);
    unit_ += units;
  }

 private:
  // Of the block, in which this warp is.
  __device__ int team() const { return static_cast<int>(threadIdx.x / 32) >> plan_.slices_log2; }

  // Tiles of the row, of which the last ones may not exist.
  __device__ void set_keys(Item& item, const RowKeys& keys, int first_tile, int last_tile) const {
    item.row = row_;
    item.token = keys.token;
    item.seq_len = keys.seq_len;
    item.settled_len = keys.settled_len;
    item.first_key = keys.first_key;
    item.first_tile = keys.first_tile + first_tile;
    item.last_tile = keys.first_tile + min(last_tile, keys.num_tiles);
  }

  // Units are head items of all teams, or parts of them, and those of a block as far apart as there
  // are blocks. Blocks side by side have the same keys of several head items, which lie side by
  // side in the cache.
  __device__ void next_even(Item& item) {
    const int groups = plan_.num_groups;
    const int row_units = groups * plan_.even_splits;
    for (; unit_ < end_; unit_ += static_cast<int>(gridDim.x)) {
      row_ = unit_ / row_units;
      const int of_row = unit_ - row_ * row_units;
      const int part = of_row / groups, first_part = unit_ - part * groups;
      const RowKeys keys = keys_of_row<kKeys>(args_.params, row_);
      const int part_tiles = even_part_tiles<kWarps>(keys.num_tiles, plan_.even_splits);
      if (part * part_tiles >= keys.num_tiles) continue;
      set_keys(item, keys, part * part_tiles, (part + 1) * part_tiles);
      set_heads(args_, item, (of_row - part * groups) * (kWarps >> plan_.slices_log2) + team());
      item.parts = {.count = (keys.num_tiles + part_tiles - 1) / part_tiles,
                    .first = first_part,
                    .base = first_part,
                    .stride = groups,
                    .own = unit_};
      unit_ += static_cast<int>(gridDim.x);
      return;
    }
    item = {.row = -1};
  }

  // The row of unit_, which lies behind this one.
  __device__ void find_row() {
    row_begin_ = row_end_;
    ++row_;
    while (true) {
      const int row = row_ + static_cast<int>(threadIdx.x & 31);
      int units = 0;
      if (row < args_.params.num_sequences) {
        const int tiles = keys_of_row<kKeys>(args_.params, row).num_tiles;
        units = units_of<kKeys>(args_, plan_, tiles) * plan_.num_groups;
      }
      int before = units;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const int lower = __shfl_up_sync(kAllLanes, before, offset);
        before += static_cast<int>(threadIdx.x & 31) >= offset ? lower : 0;
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
  }

  __device__ Parts parts_of_fixed(const Item& item, int unit, int group_units) const {
    const int base = (item.row * args_.head_items() + item.head_item) * args_.max_splits;
    return {.count = group_units, .first = base, .base = base, .stride = 1, .own = base + unit};
  }

  // A share has at most two parts: its first item, and its last one.
  __device__ Parts parts_of_shares(int group_begin, int group_units) const {
    const int share = blockIdx.x;
    const int group_end = group_begin + group_units;
    const int first_share =
        plan_.begin_of(share) <= group_begin ? share : plan_.share_of(group_begin);
    const int last_share = end_ >= group_end ? share : plan_.share_of(group_end - 1);
    Parts parts;
    parts.count = last_share - first_share + 1;
    parts.stride = 2 * kWarps;
    parts.base = first_share * parts.stride + team();
    parts.first = parts.base + (plan_.begin_of(first_share) < group_begin ? kWarps : 0);
    parts.own = parts.place(share - first_share);
    return parts;
  }

  const DecodeArgs& args_;
  const Plan& plan_;
  int unit_;
  int end_;  // of the block's share
  int row_ = 0;
  int row_begin_ = 0;
  int row_end_ = INT32_MAX;  // of the first row until its length is read
};

}  // namespace atom::ops::attention_device
