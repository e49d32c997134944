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
  int claims_log2;          // shares to be claimed are this much shorter than own ones; 0: none
  int heads_per_item;       // query heads, at most kRows
  int items_per_kv_head;    // to cover its query heads
  int max_splits;           // of a row, with fixed splits
  float2* partial_softmax;  // [parts, heads_per_item] maximum and sum
  float* partial_out;       // [parts, heads_per_item, head_dim]
  int32_t* counters;        // [num_sequences, head items] finished parts
  int32_t* claims;          // number of claimed shares, number of finished blocks

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

// The most shares that are claimed.
constexpr int kMaxClaims = 512;

// The shares of the batch's units, which are numbered row by row, within a row by groups of head
// items. A block has its own share first, all of these of about a length; behind them lie shorter
// ones that blocks claim when they have finished, since multiprocessors do not read equally fast.
struct Plan {
  int slices_log2;
  int num_groups;       // of head items
  int units_per_share;  // of a block's own
  int longer_shares;    // the first ones, of a unit more
  int own_units;        // of all own shares
  int claim_units;      // of a share to be claimed
  int num_units;        // of all shares
  int row;              // of the own share's first unit
  int row_begin;        // first unit of that row

  __device__ int begin_of(int share) const {
    const int claim = share - static_cast<int>(gridDim.x);
    return claim < 0 ? share * units_per_share + min(share, longer_shares)
                     : min(num_units, own_units + claim * claim_units);
  }
  __device__ int share_of(int unit) const {
    if (unit >= own_units) {
      return gridDim.x + (unit - own_units) / claim_units;
    }
    const int in_longer = longer_shares * (units_per_share + 1);
    return unit < in_longer ? unit / (units_per_share + 1)
                            : longer_shares + (unit - in_longer) / units_per_share;
  }
  __device__ int num_claims() const {
    return claim_units == 0 ? 0 : (num_units - own_units + claim_units - 1) / claim_units;
  }
};

// What the block has claimed, one after another: of a share its number among those to be claimed.
// Its warps come here at different times; the first one claims. In shared memory.
struct Claims {
  static constexpr uint16_t kUnclaimed = 0xffff;
  static constexpr uint16_t kClaiming = 0xfffe;

  uint16_t claimed[kMaxClaims + 1];

  // The block's claim number `index`, at least num_claims when there are no more. By a whole warp.
  __device__ int get(int index, int32_t* counter) {
    int claim = 0;
    if (threadIdx.x % 32 == 0) {
      volatile uint16_t* place = &claimed[index];
      if (atomicCAS(&claimed[index], kUnclaimed, kClaiming) == kUnclaimed) {
        *place = static_cast<uint16_t>(min(atomicAdd(counter, 1), kMaxClaims));
      }
      do {
        claim = *place;
      } while (claim == kClaiming);
    }
    return __shfl_sync(kAllLanes, claim, 0);
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

// The lengths of shares, from num_units.
__device__ inline void share_out(const DecodeArgs& args, Plan& plan) {
  const int blocks = gridDim.x;
  const int even = plan.num_units / blocks;
  // Of short shares nothing is to be gained.
  plan.claim_units = args.claims_log2 == 0 || even < 32 ? 0 : even >> args.claims_log2;
  const int own = plan.claim_units == 0 ? plan.num_units : (even - 4 * plan.claim_units) * blocks;
  plan.claim_units = max(plan.claim_units, (plan.num_units - own + kMaxClaims - 1) / kMaxClaims);
  plan.own_units = own;
  plan.units_per_share = own / blocks;
  plan.longer_shares = own - plan.units_per_share * blocks;
}

// By all threads of the block, whose number is kWarps * 32.
template <int kKeys, int kWarps>
__device__ const Plan& make_plan(const DecodeArgs& args, Claims& claims) {
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

  for (int i = threadIdx.x; i <= kMaxClaims; i += kThreads) {
    claims.claimed[i] = Claims::kUnclaimed;
  }
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
  share_out(args, plan);
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

// A range of one row's keys for the head item of one team.
struct Item {
  int share;
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

// A team's items, one after another. By whole warps.
template <int kKeys, int kWarps>
class ItemWalk {
 public:
  __device__ ItemWalk(const DecodeArgs& args, const Plan& plan, Claims& claims)
      : args_(args), plan_(plan), claims_(claims) {
    begin_share();
    if (unit_ < end_) {
      row_ = plan.row;
      row_begin_ = plan.row_begin;
      enter_row();
    }
  }

  // False when there are no more; not to be called again then.
  __device__ bool next(Item& item) {
    if (unit_ >= end_ && !claim_share()) {
      return false;
    }
    if (unit_ - row_begin_ >= group_units_ * plan_.num_groups) {
      find_row();
    }
    const int group = (unit_ - row_begin_) / group_units_;
    item.share = share_;
    item.row = row_;
    item.group_begin = row_begin_ + group * group_units_;
    item.group_units = group_units_;
    item.unit = unit_ - item.group_begin;
    const int units = args_.fixed_splits ? 1 : min(group_units_ - item.unit, end_ - unit_);
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
  __device__ void begin_share() {
    unit_ = plan_.begin_of(share_);
    end_ = plan_.begin_of(share_ + 1);
  }

  __device__ bool claim_share() {
    const int num_claims = plan_.num_claims();
    if (num_claims == 0) {
      return false;
    }
    const int claim = claims_.get(claim_index_, args_.claims);
    if (claim >= num_claims) {
      return false;
    }
    ++claim_index_;
    share_ = gridDim.x + claim;
    begin_share();
    return true;
  }

  // The row of unit_, which lies behind this one.
  __device__ void find_row() {
    row_begin_ += group_units_ * plan_.num_groups;
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
    enter_row();
  }

  __device__ void enter_row() {
    keys_ = keys_of_row<kKeys>(args_.params, row_);
    unit_tiles_ =
        args_.fixed_splits ? fixed_split_tiles<kKeys>(keys_.num_tiles) : 1 << plan_.slices_log2;
    group_units_ = units_of<kKeys>(args_, plan_, keys_.num_tiles);
  }

  const DecodeArgs& args_;
  const Plan& plan_;
  Claims& claims_;
  int share_ = blockIdx.x;
  int claim_index_ = 0;
  int unit_;
  int end_;  // of the share
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
  // A share has at most two parts: its first item, and its last one.
  const int team = (threadIdx.x / 32) >> plan.slices_log2;
  const int first_share = plan.share_of(item.group_begin);
  parts.count = plan.share_of(item.group_begin + item.group_units - 1) - first_share + 1;
  parts.stride = 2 * kWarps;
  parts.base = first_share * parts.stride + team;
  parts.first = parts.base + (plan.begin_of(first_share) < item.group_begin ? kWarps : 0);
  parts.own = parts.place(item.share - first_share);
  return parts;
}

}  // namespace atom::ops::attention_device
