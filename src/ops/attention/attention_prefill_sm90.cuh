// Inside the Hopper prefill attention: its shared memory and work items.
#pragma once

#include "ops/attention/attention_mma.cuh"
#include "ops/attention/attention_wgmma.cuh"
#include "ops/attention/attention_work.cuh"

namespace atom::ops::attention_device {

#ifndef X_SLACK
#define X_SLACK 8.0f
#endif
#ifndef X_DYNAMIC
#define X_DYNAMIC 1
#endif
#ifndef X_SECTION
#define X_SECTION (32 << 20)
#endif
#ifndef X_GROUPS64
#define X_GROUPS64 3
#endif
#ifndef X_CLUSTER
#define X_CLUSTER 1
#endif
#ifndef X_PACKEARLY
#define X_PACKEARLY 0
#endif
#ifndef X_POLY
#define X_POLY 0
#endif
#ifndef X_EARLYK
#define X_EARLYK 1
#endif

constexpr int kGroupThreads = 128;
constexpr int kGroupRows = 64;
constexpr int kStages = 2;
constexpr int kPanelRowBytes = 128;
constexpr int kPanelElements = 64;
constexpr float kLog2E = 1.4426950408889634f;
// Named barriers; 0 is __syncthreads.
constexpr int kTurnBarrier = 1;   // + consumer group
constexpr int kClearBarrier = 4;  // + consumer group
constexpr int kProducerBarrier = 7;

struct PrefillArgs {
  AttentionGpuParams params;
  int min_queries;
  int box_tokens;    // that one copy takes from a block
  int32_t* counter;  // of items handed out: zero before and after the launch
  CUtensorMap queries;
  CUtensorMap keys;
  CUtensorMap values;
};

// Consecutive queries of one sequence and head, and the tiles of keys that any of them sees.
struct Item {
  int sequence;  // -1: there is no item left
  int head;
  int first_token;  // of the item's queries
  int num_queries;
  int position;  // of the first query
  int seq_len;
  int first_key;
  int first_tile;
  int last_tile;
};

// A tile of keys or values is expanded to 16-bit elements where the cache has 8-bit ones.
template <typename KV, int kHeadDim>
struct PrefillTile {
  static constexpr bool kIs8Bit = std::is_same_v<KV, Float8E4m3>;
  // Consumer warpgroups. With short heads the exponentials take as long as the products, and a
  // third one fills the gaps.
  static constexpr int kGroups = kHeadDim == 64 && !kIs8Bit ? X_GROUPS64 : 2;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kConsumerWarps = kGroups * kGroupThreads / 32;
  static constexpr int kRows = kGroups * kGroupRows;
  static constexpr int kKeys = kHeadDim > 128 ? 64 : 128;
  static constexpr int kPanels = kHeadDim / kPanelElements;
  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;
  static constexpr int kBytes = kPanels * kPanelBytes;
  // Tiles as they are in the cache, by rows.
  static constexpr int kRawStages = kIs8Bit ? (kHeadDim > 128 ? 2 : 3) : 0;
  static constexpr int kRawBytes = kKeys * kHeadDim;
  // The base of shared memory is aligned by hand.
  static constexpr int kSharedBytes =
      1024 + kQueryBytes + 2 * kStages * kBytes + kRawStages * kRawBytes;
  // Items that are found ahead of their use.
  static constexpr int kItems = kIs8Bit ? 4 : 2;
  static constexpr int kItemReaders = kConsumerWarps + (kIs8Bit ? kGroupThreads / 32 : 1);
  // Of a cluster: numbers of items that its first block has sent to the others.
  static constexpr int kNumbers = 8;
  static constexpr int kNumBarriers = 2 + 4 * kStages + kRawStages + 2 * kItems + kNumbers;
};

// Addresses of a block's shared memory.
template <typename KV, int kHeadDim>
struct Buffers {
  using Tile = PrefillTile<KV, kHeadDim>;

  uint32_t base;
  uint32_t barriers;
  Item* items;   // [Tile::kItems]
  int* numbers;  // [Tile::kNumbers]

  __device__ uint32_t queries() const { return base; }
  __device__ uint32_t keys(int stage) const {
    return base + Tile::kQueryBytes + stage * Tile::kBytes;
  }
  __device__ uint32_t values(int stage) const { return keys(kStages + stage); }
  __device__ uint32_t raw(int stage) const { return keys(2 * kStages) + stage * Tile::kRawBytes; }
  __device__ uint32_t queries_full() const { return barriers; }
  __device__ uint32_t queries_empty() const { return barriers + 8; }
  __device__ uint32_t keys_full(int stage) const { return barriers + 16 + stage * 8; }
  __device__ uint32_t keys_empty(int stage) const { return keys_full(kStages + stage); }
  __device__ uint32_t values_full(int stage) const { return keys_full(2 * kStages + stage); }
  __device__ uint32_t values_empty(int stage) const { return keys_full(3 * kStages + stage); }
  __device__ uint32_t raw_full(int stage) const { return keys_full(4 * kStages + stage); }
  __device__ uint32_t item_full(int slot) const { return raw_full(Tile::kRawStages + slot); }
  __device__ uint32_t item_empty(int slot) const { return item_full(Tile::kItems + slot); }
  __device__ uint32_t number_full(int slot) const { return item_empty(Tile::kItems + slot); }
};

// Stage and parity of a ring of buffers.
template <int kSize>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    stage = stage + 1 == kSize ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

// Finds the block's items, those with most keys of a sequence first, and leaves them in shared
// memory. All lanes of one warp call it together.
template <typename KV, int kHeadDim, int kCluster>
class ItemFinder {
 public:
  using Tile = PrefillTile<KV, kHeadDim>;

  __device__ ItemFinder(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers)
      : args_(args), buffers_(buffers) {}

  // Returns the item that it has put; the last one has no sequence.
  __device__ Item put_next() {
    Item item;
    find(next_number(), item);
    wait_for(buffers_.item_empty(slot_.stage), slot_.parity ^ 1);
    if ((threadIdx.x & 31) == 0) {
      buffers_.items[slot_.stage] = item;
      arrive(buffers_.item_full(slot_.stage));
    }
    slot_.advance();
    return item;
  }

 private:
  __device__ void find(int number, Item& item) {
    const AttentionGpuParams& params = args_.params;
    const auto count = [&](int sequence) {
      const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
      const bool skipped = num_queries < args_.min_queries || params.seq_lens[sequence] <= 0;
      return skipped ? 0 : (num_queries + Tile::kRows - 1) / Tile::kRows;
    };
    const int heads = params.num_heads / kCluster;
    const int row_block = number / heads;
    if (!cursor_.find(row_block, params.num_sequences, count)) {
      item.sequence = -1;
      if (number == cursor_.num_items() * heads + static_cast<int>(gridDim.x) / kCluster - 1) {
        if (X_DYNAMIC && (threadIdx.x & 31) == 0 && (kCluster == 1 || cluster_rank() == 0)) {
          *args_.counter = 0;  // the last number of the launch
        }
      }
      return;
    }
    item.sequence = cursor_.sequence;
    const int first_token = params.query_start[item.sequence];
    const int num_queries = params.query_start[item.sequence + 1] - first_token;
    item.seq_len = params.seq_lens[item.sequence];
    const int num_blocks = (num_queries + Tile::kRows - 1) / Tile::kRows;
    const int of_sequence = cursor_.item_of_sequence * heads + (number - row_block * heads);
    int block;
    locate(of_sequence, num_blocks, item.seq_len, block, item.head);
    const int first_query = (num_blocks - 1 - block) * Tile::kRows;
    item.first_token = first_token + first_query;
    item.num_queries = min(Tile::kRows, num_queries - first_query);
    item.position = item.seq_len - num_queries + first_query;
    item.first_key = first_visible_key(item.position, params.sliding_window);
    item.first_tile = item.first_key / Tile::kKeys;
    item.last_tile = (item.position + item.num_queries - 1) / Tile::kKeys;
  }

  // Row block (from the end) and head of the sequence's item `index`. When its keys and values are
  // more than the device's cache holds, some heads come before the others.
  __device__ void locate(int index, int num_blocks, int seq_len, int& block, int& head) const {
    const AttentionGpuParams& params = args_.params;
    const int group = params.num_heads / params.num_kv_heads / kCluster;
    const int64_t head_bytes = int64_t{seq_len} * kHeadDim * 2 * sizeof(KV);
    const int fitting = static_cast<int>(max(int64_t{1}, X_SECTION / head_bytes));
    const int num_sections = (params.num_kv_heads + fitting - 1) / fitting;
    const int section_heads = (params.num_kv_heads + num_sections - 1) / num_sections * group;
    const int section = index / (section_heads * num_blocks);
    index -= section * section_heads * num_blocks;
    const int heads = min(section_heads, params.num_kv_heads * group - section * section_heads);
    block = index / heads;
    head = (section * section_heads + index - block * heads) * kCluster;
    if constexpr (kCluster > 1) {
      head += cluster_rank();
    }
  }

  __device__ int next_number() {
    if constexpr (!X_DYNAMIC) {
      const int num_workers = gridDim.x / kCluster;
      const int worker = blockIdx.x / kCluster;
      const int place = (round_ & 1) ? num_workers - 1 - worker : worker;
      return round_++ * num_workers + place;
    } else {
      const int lane = threadIdx.x & 31;
      int number = 0;
      if constexpr (kCluster == 1) {
        if (lane == 0) {
          number = atomicAdd(args_.counter, 1);
        }
        return __shfl_sync(kAllLanes, number, 0);
      } else {
        const int slot = numbers_.stage;
        const uint32_t parity = numbers_.parity;
        numbers_.advance();
        if (cluster_rank() != 0) {
          wait_for_cluster(buffers_.number_full(slot), parity);
          return reinterpret_cast<volatile int*>(buffers_.numbers)[slot];
        }
        if (lane == 0) {
          number = atomicAdd(args_.counter, 1);
        }
        number = __shfl_sync(kAllLanes, number, 0);
        if (lane > 0 && lane < kCluster) {
          store_remote(shared_address(buffers_.numbers + slot), number, lane);
          arrive_remote(buffers_.number_full(slot), lane);
        }
        return number;
      }
    }
  }

  const PrefillArgs& args_;
  const Buffers<KV, kHeadDim>& buffers_;
  SequenceCursor cursor_;
  RingPosition<Tile::kItems> slot_;
  RingPosition<Tile::kNumbers> numbers_;
  int round_ = 0;
};

// The items of a block, one after the other. All lanes of a warp call it together.
template <typename KV, int kHeadDim>
class ItemReader {
 public:
  __device__ explicit ItemReader(const Buffers<KV, kHeadDim>& buffers) : buffers_(buffers) {}

  // False when there is none left.
  __device__ bool next(Item& item) {
    wait_for(buffers_.item_full(slot_.stage), slot_.parity);
    item = buffers_.items[slot_.stage];
    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
      arrive(buffers_.item_empty(slot_.stage));
    }
    slot_.advance();
    return item.sequence >= 0;
  }

 private:
  const Buffers<KV, kHeadDim>& buffers_;
  RingPosition<PrefillTile<KV, kHeadDim>::kItems> slot_;
};

}  // namespace atom::ops::attention_device
