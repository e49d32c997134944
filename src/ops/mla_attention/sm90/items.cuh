// Inside latent attention for Hopper: which keys of which rows a block computes, found on the
// device, so that a recorded launch serves all later lengths.
//
// A unit is a sequence of the step (with `indices` a token, whose heads alone see the same keys),
// and last the rows behind all sequences. Its rows, queries times heads, are taken 64 at a time: an
// item. Many items are dealt out whole. Few are laid behind one another, each as long as its tiles
// of keys and a fixed cost, and every block takes its share of that line.
#pragma once

#include "ops/device/paged_row.cuh"
#include "ops/mla_attention/mla_attention_kernels.h"
#include "ops/mla_attention/sm90/sizes.cuh"

namespace atom::ops::mla_device {

constexpr int kItemCost = 4;  // tiles that loading queries and storing results take as long as

struct Work {
  MlaAttentionArgs params;
  bool is_split;   // items are cut
  int min_share;   // tiles
  int num_places;  // for items that are not cut
  // Of cut items.
  float2* partial_softmax;  // [2 * blocks, kRows] base and sum
  float* partial_out;       // [2 * blocks, kRows, kRank]
  // [1 + units] the share, or 0 where no item is in two of them; then where each unit begins.
  int32_t* line;

  __device__ bool has_indices() const { return params.indices != nullptr; }
  __device__ int num_heads() const { return static_cast<int>(params.num_heads); }
};

// Items that the rows may make at most.
inline __host__ __device__ int num_places(const MlaAttentionArgs& args) {
  const int64_t rows = args.batch.num_tokens * args.num_heads;
  return static_cast<int>(args.indices != nullptr
                              ? args.batch.num_tokens * ((args.num_heads + kRows - 1) / kRows)
                              : rows / kRows + args.batch.num_sequences + 1);
}

inline __host__ __device__ int num_units(const MlaAttentionArgs& args) {
  return static_cast<int>(args.indices != nullptr ? args.batch.num_tokens
                                                  : args.batch.num_sequences + 1);
}

struct Unit {
  const int32_t* block_table;
  int first_token;
  int num_rows;
  int first_position;  // of the first token; negative: it sees no key
  int num_tiles;       // that its items are as long as, at least 1

  __device__ int num_items() const { return (num_rows + kRows - 1) / kRows; }
  __device__ int item_length() const { return kItemCost + num_tiles; }
  __device__ int length() const { return num_items() * item_length(); }
};

__device__ inline int tiles_of(int64_t keys) {
  return keys > 0 ? static_cast<int>((keys + kKeys - 1) / kKeys) : 1;
}

// Without what only its items need.
__device__ inline Unit measure_unit(const Work& work, int index) {
  const PagedBatchArgs& batch = work.params.batch;
  Unit unit = {};
  if (work.has_indices()) {
    unit.first_token = index;
    unit.num_rows = work.num_heads();
    unit.num_tiles = tiles_of(work.params.top_k);
    return unit;
  }
  unit.first_token = batch.query_start[index];
  const bool is_sequence = index < batch.num_sequences;
  const int end = is_sequence ? batch.query_start[index + 1] : static_cast<int>(batch.num_tokens);
  const int num_keys = is_sequence ? batch.seq_lens[index] : 0;
  const int num_queries = end > unit.first_token ? end - unit.first_token : 0;
  unit.num_rows = num_queries * work.num_heads();
  unit.first_position = num_keys - num_queries;
  unit.num_tiles = tiles_of(num_keys);
  unit.block_table = batch.block_tables + index * batch.block_table_stride;
  return unit;
}

__device__ inline Unit load_unit(const Work& work, int index) {
  Unit unit = measure_unit(work, index);
  if (work.has_indices()) {
    const PagedRow row = device::find_row(work.params.batch, index);
    unit.block_table = row.block_table;
    unit.first_position = static_cast<int>(row.position);
  }
  return unit;
}

struct Item {
  const int32_t* block_table;
  int first_token;  // of the unit
  int first_position;
  int first_row;  // among the unit's
  int num_rows;   // at most kRows
  int num_keys;   // that its last row sees
  int sure_keys;  // that all its rows see
  int first_tile;
  int last_tile;  // behind
  int place;      // of a partial result; -1: it is whole

  // Of row `row`.
  __device__ int token_of(const Work& work, int row) const {
    return first_token + (first_row + row) / work.num_heads();
  }
  __device__ int head_of(const Work& work, int row) const {
    return (first_row + row) % work.num_heads();
  }
};

// Tiles [first, last) of the unit's item.
__device__ inline Item make_item(
    const Work& work, const Unit& unit, int index, int first, int last) {
  Item item;
  item.block_table = unit.block_table;
  item.first_token = unit.first_token;
  item.first_position = unit.first_position;
  item.first_row = index * kRows;
  item.num_rows = min(kRows, unit.num_rows - item.first_row);
  const int first_query = item.first_row / work.num_heads();
  const int last_query = (item.first_row + item.num_rows - 1) / work.num_heads();
  item.sure_keys = max(0, unit.first_position + first_query + 1);
  item.num_keys = max(0, unit.first_position + last_query + 1);
  if (work.has_indices()) {
    item.num_keys = min(item.num_keys, static_cast<int>(work.params.top_k));
    item.sure_keys = 0;
  }
  const int num_tiles = (item.num_keys + kKeys - 1) / kKeys;
  item.first_tile = first;
  item.last_tile = max(first, min(last, num_tiles));
  item.place = -1;
  return item;
}

// The unit that has place `place`, or -1: unit u's items are at u + query_start[u] * heads / 64.
__device__ inline int unit_of_place(const Work& work, int place, int& item) {
  if (work.has_indices()) {
    const int per_token = (work.num_heads() + kRows - 1) / kRows;
    item = place % per_token;
    return place / per_token;
  }
  const auto first_place = [&](int unit) {
    const int64_t rows = int64_t{work.params.batch.query_start[unit]} * work.num_heads();
    return static_cast<int>(rows / kRows) + unit;
  };
  int low = 0, high = num_units(work.params);  // the first unit that begins behind the place
  while (low < high) {
    const int middle = (low + high) / 2;
    if (first_place(middle) <= place) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return -1;
  item = place - first_place(low - 1);
  return low - 1;
}

// A block's part of the line.
struct Share {
  int size;
  int begin;       // of the block
  int first_unit;  // that reaches behind `begin`; num_units: none
  int unit_begin;
};

__device__ inline int size_of_share(const Work& work, int length, int num_items, int longest) {
  const int blocks = static_cast<int>(gridDim.x);
  const int share = max(work.min_share, (length + blocks - 1) / blocks);
  // Items of about a length are better left whole.
  const int rounds = (num_items + blocks - 1) / blocks;
  return int64_t{rounds} * longest * 100 <= int64_t{share} * 108 ? rounds * longest : share;
}

// The shares that the tiles of an item which begins at `begin` are in.
struct Shares {
  int first;
  int count;
};

__device__ inline Shares shares_of(int begin, int num_tiles, int share) {
  const int first = (begin + kItemCost) / share;
  return {first, (begin + kItemCost + num_tiles - 1) / share - first + 1};
}

// Whether one of the unit's items is in several shares.
__device__ inline bool is_cut(const Unit& unit, int begin, int share) {
  for (int item = 0; item < unit.num_items(); ++item) {
    if (shares_of(begin + item * unit.item_length(), unit.num_tiles, share).count > 1) return true;
  }
  return false;
}

// By all threads of the block; `scratch` is free again at its next barrier and has room for
// kScratchSize.
constexpr int kScratchSize = 4 * kThreads;
__device__ inline Share find_share(const Work& work, int* scratch) {
  Share& found = *reinterpret_cast<Share*>(scratch + 3 * kThreads);
  const int units = num_units(work.params);
  const int per_thread = (units + kThreads - 1) / kThreads;
  const int first = min(units, static_cast<int>(threadIdx.x) * per_thread);
  const int last = min(units, first + per_thread);
  int length = 0, items = 0, longest = 0;
  for (int u = first; u < last; ++u) {
    const Unit unit = measure_unit(work, u);
    length += unit.length();
    items += unit.num_items();
    if (unit.num_rows > 0) longest = max(longest, unit.item_length());
  }
  int* lengths = scratch;
  int* all_items = scratch + kThreads;
  int* all_longest = scratch + 2 * kThreads;
  lengths[threadIdx.x] = length;
  all_items[threadIdx.x] = items;
  all_longest[threadIdx.x] = longest;
  __syncthreads();
  if (threadIdx.x < 32) {
    constexpr int kPerLane = kThreads / 32;
    int sum = 0, num = 0, most = 0;
    for (int i = 0; i < kPerLane; ++i) {
      sum += lengths[threadIdx.x * kPerLane + i];
      num += all_items[threadIdx.x * kPerLane + i];
      most = max(most, all_longest[threadIdx.x * kPerLane + i]);
    }
    int before = sum;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(kAllLanes, before, distance);
      if (static_cast<int>(threadIdx.x) >= distance) before += other;
      num += __shfl_xor_sync(kAllLanes, num, distance);
      most = max(most, __shfl_xor_sync(kAllLanes, most, distance));
    }
    const int total = __shfl_sync(kAllLanes, before, 31);
    before -= sum;
    for (int i = 0; i < kPerLane; ++i) {
      int& entry = lengths[threadIdx.x * kPerLane + i];
      const int own = entry;
      entry = before;
      before += own;
    }
    if (threadIdx.x == 0) {
      const int size = size_of_share(work, total, num, most);
      found = {size, static_cast<int>(blockIdx.x) * size, units, total};
    }
  }
  __syncthreads();
  const int begin = found.begin;
  int place = lengths[threadIdx.x];
  bool has_cut = false;
  if (blockIdx.x == 0 || (place <= begin && begin < place + length)) {
    for (int u = first; u < last; ++u) {
      const Unit unit = measure_unit(work, u);
      const int own = unit.length();
      if (blockIdx.x == 0) {
        work.line[1 + u] = place;
        has_cut = has_cut || is_cut(unit, place, found.size);
      }
      if (place <= begin && begin < place + own) {
        found.first_unit = u;
        found.unit_begin = place;
      }
      place += own;
    }
  }
  has_cut = __syncthreads_or(has_cut);
  if (blockIdx.x == 0 && threadIdx.x == 0) work.line[0] = has_cut ? found.size : 0;
  return found;
}

// The tiles of an item that begins at `begin` which lie in the share of `block`.
struct Part {
  int first;
  int last;  // no more than `first`: none
};

__device__ inline Part part_of(int begin, int num_tiles, int block, int share) {
  const int64_t offset = int64_t{block} * share - begin - kItemCost;
  const int64_t end = offset + share;
  return {static_cast<int>(offset > 0 ? offset : 0),
          static_cast<int>(end < num_tiles ? end : num_tiles)};
}

// The items of this block, one after the other, for each of its threads alike.
class ItemWalk {
 public:
  __device__ ItemWalk(const Work& work, const Share& share) : work_(work), share_(share) {
    if (!work.is_split) {
      round_ = 0;
      return;
    }
    unit_index_ = share.first_unit;
    begin_ = share.unit_begin;
    item_ = 0;
    if (unit_index_ < num_units(work.params)) {
      unit_ = load_unit(work, unit_index_);
      item_ = (share.begin - begin_) / unit_.item_length();
      begin_ += item_ * unit_.item_length();
    }
  }

  __device__ bool next(Item& item) { return work_.is_split ? next_part(item) : next_whole(item); }

 private:
  __device__ bool next_part(Item& item) {
    const int end = share_.begin + share_.size;
    while (unit_index_ < num_units(work_.params) && begin_ < end) {
      const Part part = part_of(begin_, unit_.num_tiles, blockIdx.x, share_.size);
      const bool has_part = part.first < part.last;
      if (has_part) {
        item = make_item(work_, unit_, item_, part.first, part.last);
        if (part.first > 0 || part.last < unit_.num_tiles) {
          item.place = blockIdx.x * 2 + (part.first > 0 ? 0 : 1);
        }
      }
      advance();
      if (has_part) return true;
    }
    return false;
  }

  __device__ void advance() {
    begin_ += unit_.item_length();
    if (++item_ < unit_.num_items()) return;
    item_ = 0;
    while (++unit_index_ < num_units(work_.params)) {
      unit_ = load_unit(work_, unit_index_);
      if (unit_.num_rows > 0) return;
    }
  }

  // The last place first, whose rows see the most of a sequence; every other round backwards, so
  // that no block has the longest of each.
  __device__ bool next_whole(Item& item) {
    for (;; ++round_) {
      const int blocks = static_cast<int>(gridDim.x);
      const int turn = round_ % 2 == 0 ? blockIdx.x : blocks - 1 - blockIdx.x;
      if (int64_t{round_} * blocks >= work_.num_places) return false;
      const int place = work_.num_places - 1 - (round_ * blocks + turn);
      if (place < 0) continue;
      int index = 0;
      const int unit_index = unit_of_place(work_, place, index);
      if (unit_index < 0) continue;
      const Unit unit = load_unit(work_, unit_index);
      if (index >= unit.num_items()) continue;
      item = make_item(work_, unit, index, 0, unit.num_tiles);
      ++round_;
      return true;
    }
  }

  const Work& work_;
  const Share& share_;
  Unit unit_;
  int unit_index_;
  int item_;
  int begin_;  // of the item in the line
  int round_;
};

}  // namespace atom::ops::mla_device
