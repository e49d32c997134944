// Inside decode attention: a warp's tiles on their way through shared memory.
//
// Every thread copies exactly the bytes that it uses itself, and in the order in which it uses
// them: shared memory is a queue per thread, without barriers and without bank conflicts. Thread
// (g, c) = (lane / 4, lane % 4) takes
//   of keys 8 i + g: 16-byte chunks c, c + 4, ..., which is a column of the products' operand if
//     the elements of the query are taken in the same order;
//   of values 16 i + 2c, 2c + 1, 2c + 8, 2c + 9: chunks g, g + 8, ...
#pragma once

#include "ops/attention/attention_decode_plan.cuh"
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
      kWarps * 3 * 2 * kBytes + kExchangeBytes + 1024 <= kMaxSharedBytes ? 3 : 2;
  static constexpr int kQueueBytes = kWarps * kStages * 2 * kBytes;
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
  __device__ TileLoader(const DecodeArgs& args, const Plan& plan, uint32_t queue)
      : args_(args), plan_(plan), walk_(args, plan), queue_(queue) {
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
      slots_ = -1;
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

  // The first element that thread `row` of a subtile's keys reads.
  __device__ const char* source(const void* cache, int slot, int key, int byte) const {
    const int64_t slot_bytes = int64_t{args_.params.num_kv_heads} * Tile::kRowBytes;
    return static_cast<const char*>(cache) + int64_t{max(slot, 0) + key} * slot_bytes +
           item_.kv_head * Tile::kRowBytes + byte;
  }

  __device__ void copy_keys() {
    const int lane = threadIdx.x & 31;
    uint32_t target = queue_ + stage_ * 2 * Tile::kBytes + lane * 16;
#pragma unroll
    for (int i = 0; i < Tile::kSubtiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const char* from =
            source(args_.params.k_cache, slot_[i], half * 8 + lane / 4, lane % 4 * 16);
#pragma unroll
        for (int j = 0; j < Tile::kKeyChunks; ++j) {
          copy_async(target, from + j * 64, slot_[i] >= 0);
          target += 512;
        }
      }
    }
  }

  // What the query does not see, which may be anything, is replaced by zeros.
  __device__ void copy_values() {
    constexpr int kChunkBytes = Tile::kValueChunkBytes;
    const int lane = threadIdx.x & 31;
    uint32_t target = queue_ + stage_ * 2 * Tile::kBytes + Tile::kBytes + lane * kChunkBytes;
#pragma unroll
    for (int i = 0; i < Tile::kSubtiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int in_subtile = lane % 4 * 2 + k / 2 * 8 + k % 2;
        const int key = tile_ * Tile::kKeys + i * kSubtileKeys + in_subtile;
        const bool visible = key >= item_.first_key && key < item_.seq_len && slot_[i] >= 0;
        const char* from =
            source(args_.params.v_cache, slot_[i], in_subtile, lane / 4 * kChunkBytes);
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
  Item item_;
  bool done_;
  int tile_;
  int subtile_;  // number within the item's subtiles of this warp
  int stage_ = 0;
  int slots_;  // of subtile subtile_ / 32 * 32 + lane; -1: none of its keys is visible
  int slot_[Tile::kSubtiles];
};

}  // namespace atom::ops::attention_device
