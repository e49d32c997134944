// Inside decode attention of a fixed order: keys and values on their way through shared memory, in
// a queue per warp. An entry has keys or values of a part of a tile: first come the tile's keys,
// then its values.
#pragma once

#include "ops/attention/decode/tile.cuh"
#include "ops/attention/fixed/plan.cuh"

namespace atom::ops::attention_device {

template <typename T, typename KV, int kHeadDim>
struct FixedQueue {
  using Part = DecodeTile<T, KV, kHeadDim, kFixedHeads>;
  static constexpr int kParts = kFixedTileKeys / Part::kKeys;  // of a tile
  static constexpr int kEntries = 2 * kParts;
  static constexpr int kStages = 5;
  // Those that are under way at once: one is copied with the first entry of its item.
  static constexpr int kQueries = (kStages + kEntries - 1) / kEntries;
  // The one that is computed, those in the queue, and the one ahead.
  static constexpr int kItems = kQueries + 3;
  static constexpr int kQueriesBegin = kStages * Part::kBytes;
  static constexpr int kWarpBytes = kQueriesBegin + kQueries * Part::kQueryBytes;
  static constexpr int kSharedBytes = kFixedWarps * kWarpBytes;
  static_assert(Part::kKeys <= kFixedTileKeys);
};

// Copies a warp's entries ahead of their use, across the borders of items. The blocks that hold 32
// subtiles, a batch, are looked up while the batch before it is copied.
template <typename Queue>
class FixedLoader {
 public:
  // The warp's, in shared memory: `items` has kItems places for items in turn.
  __device__ FixedLoader(const FixedDecodeArgs& args,
                         const FixedPlan& plan,
                         uint32_t queue,
                         FixedItem* items)
      : args_(args),
        walk_(args, plan),
        queue_(queue),
        items_(items),
        slot_bytes_(args.params.num_kv_heads * Part::kRowBytes) {}

  // Before each load.
  __device__ void advance() {
#pragma unroll 1
    while (batch_tiles_ == 0) {
      begin_batch();
    }
  }

  // One entry, as one group of copies. Values that the query does not see, which may be anything,
  // become zeros.
  __device__ void load() {
    if (!item_->is_end()) {
      if (is_first_ && entry_ == 0) {
        copy_query(queue_ + Queue::kQueriesBegin + query_ * Part::kQueryBytes);
        query_ = query_ + 1 == Queue::kQueries ? 0 : query_ + 1;
      }
      copy_entry(queue_ + stage_ * Part::kBytes);
    }
    commit_copies();
    stage_ = stage_ + 1 == Queue::kStages ? 0 : stage_ + 1;
    if (++entry_ == Queue::kEntries) {
      entry_ = 0;
      is_first_ = false;
      ++tile_;
      subtile_ += kTileSubtiles;
      --batch_tiles_;
    }
  }

  __device__ const FixedWalk& walk() const {
    return walk_;
  }

 private:
  using Part = typename Queue::Part;
  static constexpr int kTileSubtiles = kFixedTileKeys / kSubtileKeys;
  static constexpr int kBatchTiles = 32 / kTileSubtiles;
  static constexpr int kLanesPerRow = Part::kRowBytes / 16;
  static constexpr int kRowsPerCopy = 32 / kLanesPerRow;

  __device__ static int lane() {
    return threadIdx.x & 31;
  }

  __device__ void copy_entry(uint32_t target) const {
    const bool of_values = entry_ >= Queue::kParts;
    const int part = of_values ? entry_ - Queue::kParts : entry_;
    const char* from = of_values ? values_ : keys_;
#pragma unroll
    for (int m = 0; m < Part::kSubtiles; ++m) {
      const int subtile = part * Part::kSubtiles + m;
      const int64_t slot = __shfl_sync(kAllLanes, slots_, subtile_ + subtile);
      const int first_key = tile_ * kFixedTileKeys + subtile * kSubtileKeys;
      // [begin, end) are the subtile's visible keys.
      const int begin = item_->keys.first_key - first_key;
      const int end = item_->keys.seq_len - first_key;
      const char* rows = from + slot * slot_bytes_;
      const uint32_t to = target + m * Part::kSubtileBytes;
      if (begin <= 0 && end >= kSubtileKeys) {
        copy_rows<false>(rows, to, begin, end);
      } else if (of_values || (end > 0 && begin < kSubtileKeys)) {
        copy_rows<true>(rows, to, begin, end);
      }
    }
  }

  // Copies a subtile; with kMasked rows that the query does not see become zeros.
  template <bool kMasked>
  __device__ void copy_rows(const char* from, uint32_t target, int begin, int end) const {
    const int first_row = lane() / kLanesPerRow;
    target += tile_offset<Part::kRowBytes>(first_row, lane() % kLanesPerRow);
#pragma unroll
    for (int i = 0; i < kSubtileKeys; i += kRowsPerCopy) {
      const int row = i + first_row;
      const bool visible = !kMasked || (row >= begin && row < end);
      // The place of row i + first_row, since the chunks are permuted by exclusive or.
      copy_async((target ^ tile_offset<Part::kRowBytes>(i % 8, 0) % 128) + i * Part::kRowBytes,
                 from,
                 visible);
      from += kRowsPerCopy * slot_bytes_;
    }
  }

  __device__ void copy_query(uint32_t target) const {
    constexpr int kRowBytes = Part::kQueryRowBytes;
    constexpr int kChunks = kRowBytes / 16;
    const AttentionArgs& params = args_.params;
    const int64_t first =
        item_->keys.token * params.q_token_stride + item_->first_head * params.q_head_stride;
#pragma unroll
    for (int i = 0; i < Part::kMaxHeads * kChunks; i += 32) {
      const int head = (i + lane()) / kChunks;
      const int chunk = (i + lane()) % kChunks;
      const bool valid = head < item_->num_heads;
      const int64_t place = first + (valid ? head : 0) * params.q_head_stride;
      copy_async(target + tile_offset<kRowBytes>(head, chunk),
                 static_cast<const char*>(params.q) + place * 2 + chunk * 16,
                 valid);
    }
  }

  // The batch that was looked up becomes the one that is copied.
  __device__ void begin_batch() {
    item_ = ahead_.item;
    tile_ = ahead_.tile;
    is_first_ = ahead_.is_first;
    slots_ = ahead_.block * args_.params.block_size + ahead_.offset;
    subtile_ = 0;
    batch_tiles_ = 0;
    if (item_ != nullptr) {
      // Behind the last item entries go on, of nothing.
      batch_tiles_ = item_->is_end() ? 1 : min(item_->last_tile - tile_, kBatchTiles);
      // This thread's part of the rows.
      const int64_t part = int64_t{lane() / kLanesPerRow} * slot_bytes_ +
                           item_->kv_head * Part::kRowBytes + lane() % kLanesPerRow * 16;
      keys_ = static_cast<const char*>(args_.params.k_cache) + part;
      values_ = static_cast<const char*>(args_.params.v_cache) + part;
    }
    ahead_.tile += kBatchTiles;
    ahead_.is_first = item_ == nullptr || ahead_.tile >= item_->last_tile;
    if (ahead_.is_first) begin_item();
    look_up();
  }

  __device__ void begin_item() {
    FixedItem next;
    walk_.next(next);
    FixedItem* const place = items_ + item_place_;
    if (lane() == 0) *place = next;
    __syncwarp();
    item_place_ = item_place_ + 1 == Queue::kItems ? 0 : item_place_ + 1;
    ahead_.item = place;
    ahead_.tile = next.first_tile;
  }

  // Where the subtiles of the batch ahead are in the cache, one to each lane.
  __device__ void look_up() {
    const AttentionArgs& params = args_.params;
    const FixedItem& item = *ahead_.item;
    const int tile = ahead_.tile + lane() / kTileSubtiles;
    const int key = tile * kFixedTileKeys + lane() % kTileSubtiles * kSubtileKeys;
    ahead_.block = 0;
    ahead_.offset = 0;
    if (tile < item.last_tile && key < item.keys.seq_len &&
        key + kSubtileKeys > item.keys.first_key) {
      const int block = key / params.block_size;
      ahead_.block = params.block_tables[item.row * params.block_table_stride + block];
      ahead_.offset = key - block * params.block_size;
    }
  }

  const FixedDecodeArgs& args_;
  FixedWalk walk_;
  uint32_t queue_;
  FixedItem* items_;
  int item_place_ = 0;
  int slot_bytes_;  // of a token in the cache
  int stage_ = 0;
  int query_ = 0;
  int entry_ = 0;  // of the tile

  // The item of the batch that is copied.
  const FixedItem* item_ = nullptr;
  const char* keys_;
  const char* values_;
  int tile_;
  bool is_first_;        // the tile is the item's first one
  int batch_tiles_ = 0;  // that are still to come
  int subtile_;          // the tile's first one within the batch
  int slots_;            // of subtile `lane` of the batch; 0 if none of its keys is visible

  struct {
    const FixedItem* item = nullptr;
    int tile = 0;
    bool is_first = false;
    int block = 0;   // of subtile `lane`
    int offset = 0;  // of its first key in the block
  } ahead_;
};

}  // namespace atom::ops::attention_device
