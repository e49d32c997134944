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
  static constexpr bool kIs8Bit = std::is_same_v<KV, Float8E4m3>;
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(KV));
  static constexpr int kSubtileBytes = kSubtileKeys * kRowBytes;
  static constexpr int kSubtiles = kSubtileBytes >= 4096 ? 1 : 4096 / kSubtileBytes;
  static constexpr int kKeys = kSubtiles * kSubtileKeys;
  static constexpr int kBytes = kSubtiles * kSubtileBytes;  // of keys, and of values
  static constexpr int kKeyChunks = kRowBytes / 64;         // of a thread and key
  static constexpr int kValueChunkBytes = kRowBytes >= 128 ? 16 : 8;
  static constexpr int kValueChunks = kRowBytes / (8 * kValueChunkBytes);
  static constexpr int kWarps = kBytes > 4096 ? 4 : 8;
  static constexpr int kThreads = kWarps * 32;
  // Of a head in the exchange between warps, with some floats against bank conflicts.
  static constexpr int kExchangeStride = kHeadDim + 4;
  static constexpr int kExchangeBytes = kWarps * kRows * (kExchangeStride + 2) * 4;
  static constexpr int kStages =
      kWarps * 3 * 2 * kBytes + kExchangeBytes + 1536 <= kMaxSharedBytes ? 3 : 2;
  static constexpr int kQueueBytes = kWarps * kStages * 2 * kBytes;
  static constexpr int kLanesPerKey = kRowBytes / 16;
  static constexpr int kKeysPerCopy = 32 / kLanesPerKey;

  // Byte of a tile of keys that holds 16-byte chunk `chunk` of a key: the chunks of odd keys are
  // exchanged so that two keys' groups of four chunks lie in different banks.
  __device__ static uint32_t key_place(int key, int chunk) {
    const int in_row = kRowBytes >= 128 ? chunk ^ ((key & 1) << 2) : chunk;
    return key * kRowBytes + in_row * 16;
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
// are a group of copies each; a group is committed in every call, were it an empty one.
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
    enter_item();
  }

  __device__ void load_keys() {
    if (!done_) {
      look_up();
      copy_keys();
    }
    commit_copies();
  }

  // Of the tile whose keys were loaded last.
  __device__ void load_values() {
    if (!done_) {
      copy_values();
      stage_ = stage_ + 1 == Tile::kStages ? 0 : stage_ + 1;
      tile_ += 1 << plan_.slices_log2;
      subtile_ += Tile::kSubtiles;
      if (tile_ >= item_.last_tile) {
        enter_item();
      }
    }
    commit_copies();
  }

 private:
  __device__ void enter_item() {
    const int slice = (threadIdx.x / 32) & ((1 << plan_.slices_log2) - 1);
    do {
      done_ = !walk_.next(item_);
      tile_ = item_.first_tile + slice;
    } while (!done_ && tile_ >= item_.last_tile);
    subtile_ = 0;
    // Where this thread's part of slot 0 is, of the item's head.
    const int lane = threadIdx.x & 31;
    const int64_t head = item_.kv_head * Tile::kRowBytes;
    keys_ = static_cast<const char*>(args_.params.k_cache) + head +
            int64_t{lane / Tile::kLanesPerKey} * slot_bytes_ + lane % Tile::kLanesPerKey * 16;
    values_ = static_cast<const char*>(args_.params.v_cache) + head +
              int64_t{lane % 4 * 2} * slot_bytes_ + lane / 4 * Tile::kValueChunkBytes;
  }

  // The places of the tile's subtiles in the cache; once in 32 subtiles for all of these.
  __device__ void look_up() {
    if (subtile_ % 32 == 0) {
      const AttentionGpuParams& params = args_.params;
      const int lane = threadIdx.x & 31;
      const int tile = tile_ + ((lane / Tile::kSubtiles) << plan_.slices_log2);
      const int key = tile * Tile::kKeys + lane % Tile::kSubtiles * kSubtileKeys;
      const bool visible =
          tile < item_.last_tile && key < item_.seq_len && key + kSubtileKeys > item_.first_key;
      slots_ = 0;
      if (visible) {
        const int block = key / params.block_size;
        const int64_t entry = item_.row * params.block_table_stride + block;
        slots_ = params.block_tables[entry] * params.block_size + key - block * params.block_size;
      }
    }
#pragma unroll
    for (int i = 0; i < Tile::kSubtiles; ++i) {
      slot_[i] = __shfl_sync(kAllLanes, slots_, (subtile_ + i) & 31);
    }
  }

  __device__ void copy_keys() {
    const int lane = threadIdx.x & 31;
    const int chunk = lane % Tile::kLanesPerKey;
    const int key_of_copy = lane / Tile::kLanesPerKey;
    const uint32_t entry = queue_ + stage_ * 2 * Tile::kBytes;
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
    uint32_t target = queue_ + stage_ * 2 * Tile::kBytes + Tile::kBytes + lane * kChunkBytes;
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
  Item item_;
  bool done_;
  int tile_;
  int subtile_;  // number within the item's subtiles of this warp
  int stage_ = 0;
  int slots_;  // of subtile subtile_ / 32 * 32 + lane; 0 if none of its keys is visible
  int slot_[Tile::kSubtiles];
};

}  // namespace atom::ops::attention_device
