// Inside decode attention: a warp's tiles on their way through shared memory.
//
// A queue per warp, so that loads never wait for another warp. Keys are copied in rows, and read by
// thread (g, c) = (lane / 4, lane % 4) as chunks c, c + 4, ... of 16 bytes of keys g and g + 8 of
// 16: that is the operand of the matrix instructions if the elements of the query are taken in the
// same order. Of values each thread copies what it uses itself: of keys 2c, 2c + 1, 2c + 8, 2c + 9
// of 16 chunks g, g + 8, ...
#pragma once

#include "ops/attention/attention_decode_items.cuh"
#include "ops/attention/attention_mma.cuh"

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
  static constexpr int kKeyChunks = kRowBytes / 64;         // of a thread and key
  static constexpr int kValueChunkBytes = kRowBytes >= 128 ? 16 : 8;
  static constexpr int kValueChunks = kRowBytes / (8 * kValueChunkBytes);
  static constexpr int kQueryBytes = kRows * kHeadDim * static_cast<int>(sizeof(T));
  // Of a tile in the queue: its keys, its values, and the query with an item's first tile.
  static constexpr int kEntryBytes = 2 * kBytes + kQueryBytes;
  static constexpr int kWarps = kHeadDim > 128 || kRows > 8 ? 4 : 8;
  static constexpr int kThreads = kWarps * 32;
  // Enough for the bandwidth: what more is on its way delays everything else that is read.
  static constexpr int kStages = kWarps * 2 * kBytes <= 32 * 1024 ? 3 : 2;
  static constexpr int kQueueBytes = kWarps * kStages * kEntryBytes;
  // Of a head in the exchange between warps, with some floats against bank conflicts.
  static constexpr int kExchangeStride = kHeadDim + 4;
  static constexpr int kLanesPerKey = kRowBytes / 16;
  static constexpr int kKeysPerCopy = 32 / kLanesPerKey;

  // Byte of a tile of keys that holds 16-byte chunk `chunk` of a key: the chunks of odd keys are
  // exchanged so that two keys' groups of four chunks lie in different banks.
  __device__ static uint32_t key_place(int key, int chunk) {
    const int in_row = kRowBytes >= 128 ? chunk ^ ((key & 1) << 2) : chunk;
    return key * kRowBytes + in_row * 16;
  }
  // Likewise of the query's heads.
  __device__ static uint32_t query_place(int head, int chunk) {
    return head * kHeadDim * static_cast<int>(sizeof(T)) + (chunk ^ (head & 7)) * 16;
  }
  // Of this thread's chunk number `chunk` of its key in half `half` of subtile m.
  __device__ static uint32_t key_offset(int m, int half, int chunk) {
    const int lane = threadIdx.x & 31;
    return key_place(lane / 4, lane % 4 + (chunk & 1) * 4) + (chunk & ~1) * 64 +
           (m * kSubtileKeys + half * 8) * kRowBytes;
  }
};

__device__ inline void copy_8_async(uint32_t target, const void* source, bool valid) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, %2;" ::"r"(target),
               "l"(source),
               "r"(valid ? 8 : 0)
               : "memory");
}

// Copies a warp's tiles ahead of their use, across the borders of items. Keys and values of a tile
// are a group of copies each; a group is committed in every call, were it an empty one. The blocks
// that hold 32 subtiles, a batch, are looked up while the batch before it is copied.
template <typename Tile>
class TileLoader {
 public:
  // `queue`: the warp's shared memory.
  __device__ TileLoader(const DecodeArgs& args, const Plan& plan, Claims& claims, uint32_t queue)
      : args_(args),
        plan_(plan),
        walk_(args, plan, claims),
        queue_(queue),
        slot_bytes_(args.params.num_kv_heads * Tile::kRowBytes) {
    next_item();
    look_up();
    begin_batch();
  }

  __device__ void load_keys() {
    if (!done_) {
#pragma unroll
      for (int m = 0; m < Tile::kSubtiles; ++m) {
        slot_[m] = __shfl_sync(kAllLanes, slots_, (subtile_ + m) & 31);
      }
      if (is_first_) {
        copy_query();
      }
      copy_keys();
    }
    commit_copies();
  }

  // Of the tile whose keys were loaded last.
  __device__ void load_values() {
    if (!done_) {
      copy_values();
      is_first_ = false;
      stage_ = stage_ + 1 == Tile::kStages ? 0 : stage_ + 1;
      tile_ += 1 << plan_.slices_log2;
      subtile_ += Tile::kSubtiles;
      if (tile_ >= item_.last_tile || subtile_ == 32) {
        begin_batch();
      }
    }
    commit_copies();
  }

 private:
  // The batch that was looked up becomes the one that is copied.
  __device__ void begin_batch() {
    item_ = ahead_.item;
    done_ = ahead_.done;
    tile_ = ahead_.tile;
    is_first_ = ahead_.is_first;
    slots_ = ahead_.block * args_.params.block_size + ahead_.offset;
    subtile_ = 0;
    if (done_) {
      return;
    }
    // Where this thread's part of slot 0 is, of the item's head.
    const int lane = threadIdx.x & 31;
    const int64_t head = item_.kv_head * Tile::kRowBytes;
    keys_ = static_cast<const char*>(args_.params.k_cache) + head +
            int64_t{lane / Tile::kLanesPerKey} * slot_bytes_ + lane % Tile::kLanesPerKey * 16;
    values_ = static_cast<const char*>(args_.params.v_cache) + head +
              int64_t{lane % 4 * 2} * slot_bytes_ + lane / 4 * Tile::kValueChunkBytes;

    ahead_.tile = tile_ + ((32 / Tile::kSubtiles) << plan_.slices_log2);
    ahead_.is_first = false;
    if (ahead_.tile >= item_.last_tile) {
      next_item();
    }
    look_up();
  }

  // The next item of which this warp has a tile.
  __device__ void next_item() {
    const int slice = (threadIdx.x / 32) & ((1 << plan_.slices_log2) - 1);
    ahead_.is_first = true;
    do {
      ahead_.done = !walk_.next(ahead_.item);
      ahead_.tile = ahead_.item.first_tile + slice;
    } while (!ahead_.done && ahead_.tile >= ahead_.item.last_tile);
  }

  // Where the subtiles of the batch ahead are in the cache, one to each lane.
  __device__ void look_up() {
    const AttentionGpuParams& params = args_.params;
    const Item& item = ahead_.item;
    const int lane = threadIdx.x & 31;
    const int tile = ahead_.tile + ((lane / Tile::kSubtiles) << plan_.slices_log2);
    const int key = tile * Tile::kKeys + lane % Tile::kSubtiles * kSubtileKeys;
    ahead_.block = 0;
    ahead_.offset = 0;
    if (!ahead_.done && tile < item.last_tile && key < item.seq_len &&
        key + kSubtileKeys > item.first_key) {
      const int block = key / params.block_size;
      ahead_.block = params.block_tables[item.row * params.block_table_stride + block];
      ahead_.offset = key - block * params.block_size;
    }
  }

  __device__ void copy_query() {
    constexpr int kChunks = Tile::kQueryBytes / 16;
    constexpr int kChunksPerHead = kChunks / Tile::kMaxHeads;
    const AttentionGpuParams& params = args_.params;
    const int lane = threadIdx.x & 31;
    const int64_t token = params.query_start[item_.row];
    const uint32_t target = queue_ + stage_ * Tile::kEntryBytes + 2 * Tile::kBytes;
#pragma unroll
    for (int i = 0; i < kChunks; i += 32) {
      const int head = (i + lane) / kChunksPerHead;
      const int chunk = (i + lane) % kChunksPerHead;
      const bool valid = head < item_.num_heads;
      const int64_t place = token * params.q_token_stride +
                            (item_.first_head + (valid ? head : 0)) * params.q_head_stride;
      copy_async(target + Tile::query_place(head, chunk),
                 static_cast<const char*>(params.q) + place * 2 + chunk * 16,
                 valid);
    }
  }

  __device__ void copy_keys() {
    const int lane = threadIdx.x & 31;
    const int chunk = lane % Tile::kLanesPerKey;
    const int key_of_copy = lane / Tile::kLanesPerKey;
    const uint32_t entry = queue_ + stage_ * Tile::kEntryBytes;
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
      const int first_key = tile_ * Tile::kKeys + m * kSubtileKeys;
      const bool visible = first_key < item_.seq_len && first_key + kSubtileKeys > item_.first_key;
#pragma unroll
      for (int i = 0; i < kSubtileKeys; i += Tile::kKeysPerCopy) {
        copy_async(entry + Tile::key_place(m * kSubtileKeys + i + key_of_copy, chunk),
                   keys_ + int64_t{slot_[m] + i} * slot_bytes_,
                   visible);
      }
    }
  }

  // What the query does not see, which may be anything, is replaced by zeros.
  __device__ void copy_values() {
    constexpr int kChunkBytes = Tile::kValueChunkBytes;
    const int lane = threadIdx.x & 31;
    uint32_t target = queue_ + stage_ * Tile::kEntryBytes + Tile::kBytes + lane * kChunkBytes;
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int in_subtile = k / 2 * 8 + k % 2;
        const int key = tile_ * Tile::kKeys + m * kSubtileKeys + lane % 4 * 2 + in_subtile;
        const bool visible = key >= item_.first_key && key < item_.seq_len;
        const char* from = values_ + int64_t{slot_[m] + in_subtile} * slot_bytes_;
#pragma unroll
        for (int j = 0; j < Tile::kValueChunks; ++j) {
          if constexpr (kChunkBytes == 16) {
            copy_async(target, from + j * 128, visible);
          } else {
            copy_8_async(target, from, visible);
          }
          target += 32 * kChunkBytes;
        }
      }
    }
  }

  const DecodeArgs& args_;
  const Plan& plan_;
  ItemWalk<Tile::kKeys, Tile::kWarps> walk_;
  uint32_t queue_;
  int slot_bytes_;  // of a token in the cache
  const char* keys_;
  const char* values_;

  // Of the batch that is copied.
  Item item_;
  bool done_;      // there is none
  bool is_first_;  // the next tile is the item's first one
  int tile_;
  int subtile_;  // within the batch
  int slots_;    // of subtile `lane` of the batch; 0 if none of its keys is visible
  int slot_[Tile::kSubtiles];
  int stage_ = 0;

  struct {
    Item item;
    bool done;
    bool is_first;
    int tile;
    int block;   // of subtile `lane`
    int offset;  // of its first key in the block
  } ahead_;
};

}  // namespace atom::ops::attention_device
