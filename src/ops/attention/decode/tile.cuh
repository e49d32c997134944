// Inside decode attention: a warp's tiles on their way through shared memory.
//
// A queue per warp, so that loads never wait for another warp. Keys and values are copied in rows,
// permuted so that the matrices of eight rows of 16 bytes lie in different banks.
#pragma once

#include "ops/attention/decode/items.cuh"
#include "ops/attention/device/mma.cuh"
#include "ops/device/async_copy.cuh"

namespace atom::ops::attention_device {

// Keys that lie in one block of the cache: its block size is a multiple.
constexpr int kSubtileKeys = 16;
constexpr int kMaxSharedBytes = 227 * 1024;

// kRows: query heads of a warp, at most.
template <typename T, typename KV, int kHeadDim, int kRows>
struct DecodeTile {
  static constexpr int kMaxHeads = kRows;
  static constexpr bool kIs8Bit = std::is_same_v<KV, Float8E4m3>;
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(KV));
  static constexpr int kSubtileBytes = kSubtileKeys * kRowBytes;
  static constexpr int kSubtiles = kSubtileBytes >= 4096 ? 1 : 4096 / kSubtileBytes;
  static constexpr int kKeys = kSubtiles * kSubtileKeys;
  static constexpr int kBytes = kSubtiles * kSubtileBytes;  // of keys, and of values
  static constexpr int kQueryRowBytes = kHeadDim * static_cast<int>(sizeof(T));
  static constexpr int kQueryBytes = kRows * kQueryRowBytes;
  // A tile in the queue has its keys, its values, and with an item's first tile the query.
  static constexpr int kEntryBytes = 2 * kBytes + kQueryBytes;
  static constexpr int kWarps = kHeadDim > 128 || kRows > 8 ? 4 : 8;
  static constexpr int kThreads = kWarps * 32;
  // Enough for the bandwidth: what more is on its way delays everything else that is read.
  static constexpr int kStages = kWarps * 2 * kBytes <= 32 * 1024 ? 3 : 2;
  // Items of a warp: the one whose end is computed, those in the queue, and the one ahead.
  static constexpr int kNumItems = kStages + 2;
  static constexpr int kQueueBytes = kWarps * kStages * kEntryBytes;
  // Lanes that copy a row of the cache, 16 bytes each.
  static constexpr int kLanesPerRow = kRowBytes / 16;
  // A head's row in the exchange between warps, with some floats against bank conflicts.
  static constexpr int kExchangeStride = kHeadDim + 4;
};

// Copies those rows of a subtile for which wanted(row) holds; where visible(row) does not, they
// become zeros. `from` is the lane's place in the first row that it copies, rows are `row_bytes`
// apart.
template <typename Tile, typename Visible, typename Wanted>
__device__ void copy_rows(const char* from,
                          int row_bytes,
                          uint32_t target,
                          const Visible& visible,
                          const Wanted& wanted) {
  constexpr int kRowsPerCopy = 32 / Tile::kLanesPerRow;
  const int lane = threadIdx.x & 31;
  const int first_row = lane / Tile::kLanesPerRow;
  target += tile_offset<Tile::kRowBytes>(first_row, lane % Tile::kLanesPerRow);
#pragma unroll
  for (int i = 0; i < kSubtileKeys; i += kRowsPerCopy) {
    if (wanted(i + first_row)) {
      // The place of row i + first_row, since the chunks are permuted by exclusive or.
      copy_async((target ^ tile_offset<Tile::kRowBytes>(i % 8, 0) % 128) + i * Tile::kRowBytes,
                 from,
                 visible(i + first_row));
    }
    from += kRowsPerCopy * row_bytes;
  }
}

// The item's query heads.
template <typename Tile>
__device__ void copy_query(const AttentionArgs& params, const Item& item, uint32_t target) {
  constexpr int kRowBytes = Tile::kQueryRowBytes;
  constexpr int kChunks = kRowBytes / 16;
  const int lane = threadIdx.x & 31;
  const int64_t first = item.token * params.q_token_stride + item.first_head * params.q_head_stride;
#pragma unroll
  for (int i = 0; i < Tile::kMaxHeads * kChunks; i += 32) {
    const int head = (i + lane) / kChunks;
    const int chunk = (i + lane) % kChunks;
    const bool valid = head < item.num_heads;
    const int64_t place = first + (valid ? head : 0) * params.q_head_stride;
    copy_async(target + tile_offset<kRowBytes>(head, chunk),
               static_cast<const char*>(params.q) + place * 2 + chunk * 16,
               valid);
  }
}

// Copies a warp's tiles ahead of their use, across the borders of items. An entry of the queue has
// a tile, which may lie behind the row's last key where the warp has no tile of an item. The blocks
// that hold 32 subtiles, a batch, are looked up while the batch before it is copied.
template <typename Tile>
class TileLoader {
 public:
  // The warp's, in shared memory: `items` has kNumItems places for items in turn.
  __device__ TileLoader(const DecodeArgs& args, const Plan& plan, uint32_t queue, Item* items)
      : args_(args),
        walk_(args, plan),
        slices_log2_(plan.slices_log2),
        queue_(queue),
        items_(items),
        slot_bytes_(args.params.num_kv_heads * Tile::kRowBytes) {}

  // Before each load.
  __device__ void advance() {
#pragma unroll 1
    while (batch_tiles_ == 0) {
      begin_batch();
    }
  }

  // Whether no kernel of this step writes what the next load reads, but for the query.
  __device__ bool is_settled() const {
    return item_.is_end() || (tile_ + 1) * Tile::kKeys <= item_.settled_len;
  }

  // Loads until now were without queries, which are there now. All these copies are one group.
  __device__ void end_early() {
    is_early_ = false;
    __syncwarp();
    int place = -1;
    for (int stage = 0; stage < num_early_; ++stage) {
      if ((early_firsts_ >> stage & 1) == 0) continue;
      const Item& item = items_[++place];
      if (!item.is_end()) {
        copy_query<Tile>(args_.params, item, queue_ + stage * Tile::kEntryBytes + 2 * Tile::kBytes);
      }
    }
    for (int stage = 0; stage < num_early_; ++stage) commit_copies();
  }

  // What the next load will read, into the second-level cache: also before the kernel that writes
  // some of it has ended.
  __device__ void prefetch() const {
    constexpr int kLineBytes = Tile::kRowBytes < 128 ? Tile::kRowBytes : 128;
    constexpr int kLines = Tile::kSubtileBytes / kLineBytes;
    constexpr int kLinesPerRow = Tile::kRowBytes / kLineBytes;
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
      const int slot = __shfl_sync(kAllLanes, slots_, subtile_ + m);
      if (!is_visible(m)) {
        continue;
      }
#pragma unroll
      for (int first = 0; first < kLines; first += 32) {
        const int line = first + lane();
        if (line >= kLines) {
          break;
        }
        const int64_t place = int64_t{slot + line / kLinesPerRow} * slot_bytes_ +
                              item_.kv_head * Tile::kRowBytes + line % kLinesPerRow * kLineBytes;
        device::prefetch_to_l2(static_cast<const char*>(args_.params.k_cache) + place);
        device::prefetch_to_l2(static_cast<const char*>(args_.params.v_cache) + place);
      }
    }
  }

  // One entry, as one group of copies. Values that the query does not see, which may be anything,
  // become zeros.
  __device__ void load() {
    if (!item_.is_end()) {
      copy_entry(queue_ + stage_ * Tile::kEntryBytes);
    }
    if (is_early_) {
      early_firsts_ |= (is_first_ ? 1u : 0u) << stage_;
      ++num_early_;
    } else {
      commit_copies();
    }
    stage_ = stage_ + 1 == Tile::kStages ? 0 : stage_ + 1;
    is_first_ = false;
    tile_ += 1 << slices_log2_;
    subtile_ += Tile::kSubtiles;
    --batch_tiles_;
  }

 private:
  static constexpr int kLanesPerRow = Tile::kLanesPerRow;

  __device__ static int lane() {
    return threadIdx.x & 31;
  }

  // [begin, end) are the visible keys of subtile m of the tile.
  __device__ int begin_in(int m) const {
    return item_.first_key - tile_ * Tile::kKeys - m * kSubtileKeys;
  }
  __device__ int end_in(int m) const {
    return item_.seq_len - tile_ * Tile::kKeys - m * kSubtileKeys;
  }
  __device__ bool is_visible(int m) const {
    return end_in(m) > 0 && begin_in(m) < kSubtileKeys;
  }

  __device__ void copy_entry(uint32_t entry) const {
    if (is_first_ && !is_early_) {
      copy_query<Tile>(args_.params, item_, entry + 2 * Tile::kBytes);
    }
    if (begin_in(0) <= 0 && end_in(0) >= Tile::kKeys) {
      copy_tile<false>(entry);
    } else {
      copy_tile<true>(entry);
    }
  }

  // With kMasked some of its keys may be hidden from the query.
  template <bool kMasked>
  __device__ void copy_tile(uint32_t entry) const {
    const auto every = [](int) { return true; };
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
      const int64_t slot = __shfl_sync(kAllLanes, slots_, subtile_ + m);
      const uint32_t target = entry + m * Tile::kSubtileBytes;
      if (!kMasked || is_visible(m)) {
        copy_rows<Tile>(keys_ + slot * slot_bytes_, slot_bytes_, target, every, every);
      }
      const auto visible = [&](int row) {
        return !kMasked || (row >= begin_in(m) && row < end_in(m));
      };
      copy_rows<Tile>(
          values_ + slot * slot_bytes_, slot_bytes_, target + Tile::kBytes, visible, every);
    }
  }

  // The batch that was looked up becomes the one that is copied.
  __device__ void begin_batch() {
    constexpr int kMaxTiles = 32 / Tile::kSubtiles;
    item_ = ahead_.item;
    tile_ = ahead_.tile;
    is_first_ = ahead_.is_first;
    slots_ = ahead_.block * args_.params.block_size + ahead_.offset;
    subtile_ = 0;
    const int tiles = (item_.last_tile - tile_ + (1 << slices_log2_) - 1) >> slices_log2_;
    batch_tiles_ = max(min(tiles, kMaxTiles), is_first_ ? 1 : 0);
    // This thread's part of the rows.
    const int64_t part = int64_t{lane() / kLanesPerRow} * slot_bytes_ +
                         item_.kv_head * Tile::kRowBytes + lane() % kLanesPerRow * 16;
    keys_ = static_cast<const char*>(args_.params.k_cache) + part;
    values_ = static_cast<const char*>(args_.params.v_cache) + part;

    ahead_.tile += kMaxTiles << slices_log2_;
    ahead_.is_first = ahead_.tile >= ahead_.item.last_tile;
    if (ahead_.is_first) {
      walk_.next(ahead_.item);
      if (lane() == 0) {
        items_[item_place_] = ahead_.item;
      }
      item_place_ = item_place_ + 1 == Tile::kNumItems ? 0 : item_place_ + 1;
      const int slice = static_cast<int>(threadIdx.x / 32) & ((1 << slices_log2_) - 1);
      ahead_.tile = ahead_.item.first_tile + slice;
    }
    look_up();
  }

  // Where the subtiles of the batch ahead are in the cache, one to each lane.
  __device__ void look_up() {
    const AttentionArgs& params = args_.params;
    const Item& item = ahead_.item;
    const int tile = ahead_.tile + ((lane() / Tile::kSubtiles) << slices_log2_);
    const int key = tile * Tile::kKeys + lane() % Tile::kSubtiles * kSubtileKeys;
    ahead_.block = 0;
    ahead_.offset = 0;
    if (tile < item.last_tile && key < item.seq_len && key + kSubtileKeys > item.first_key) {
      const int block = key / params.block_size;
      ahead_.block = params.block_tables[item.row * params.block_table_stride + block];
      ahead_.offset = key - block * params.block_size;
    }
  }

  const DecodeArgs& args_;
  ItemWalk<Tile::kKeys, Tile::kWarps> walk_;
  int slices_log2_;
  uint32_t queue_;
  Item* items_;
  int item_place_ = 0;
  int slot_bytes_;  // of a token in the cache
  int stage_ = 0;
  bool is_early_ = true;  // the kernel before may still run
  int num_early_ = 0;     // entries that were loaded then, and which have an item's first tile
  uint32_t early_firsts_ = 0;

  // The item of the batch that is copied.
  Item item_;
  const char* keys_;
  const char* values_;
  int tile_;
  bool is_first_;        // the next tile is the item's first one
  int batch_tiles_ = 0;  // entries that are still to come
  int subtile_;          // within the batch
  int slots_;            // of subtile `lane` of the batch; 0 if none of its keys is visible

  struct {
    Item item = {};
    int tile = 0;
    bool is_first = false;
    int block = 0;   // of subtile `lane`
    int offset = 0;  // of its first key in the block
  } ahead_;
};

}  // namespace atom::ops::attention_device
