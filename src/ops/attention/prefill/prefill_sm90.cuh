// Inside the Hopper prefill attention: its shared memory and work items.
#pragma once

#include "ops/attention/device/softmax.cuh"
#include "ops/attention/device/wgmma.cuh"
#include "ops/attention/device/work.cuh"

namespace atom::ops::attention_device {

constexpr int kGroupThreads = 128;
constexpr int kGroupRows = 64;
constexpr int kPanelRowBytes = 128;
constexpr int kPanelElements = 64;
constexpr int kPieceBytes = 8 * kPanelRowBytes;
// Named barriers; 0 is __syncthreads.
constexpr int kTurnBarrier = 1;   // + consumer group
constexpr int kClearBarrier = 4;  // + consumer group
constexpr int kProducerBarrier = 7;

struct PrefillArgs {
  AttentionArgs params;
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

// A tile of keys or values is expanded to 16-bit elements where the cache has 8-bit ones. Keys of
// 192 elements have values of 128: those of latent attention that has been expanded.
template <typename KV, int kHeadDim>
struct PrefillTile {
  static constexpr bool kIs8Bit = std::is_same_v<KV, Float8E4m3>;
  // Consumer warpgroups. With short heads the exponentials take as long as the products, and a
  // third one fills the gaps.
  static constexpr int kGroups = kHeadDim == 64 && !kIs8Bit ? 3 : 2;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kConsumerWarps = kGroups * kGroupThreads / 32;
  static constexpr int kRows = kGroups * kGroupRows;
  static constexpr int kValueDim = kHeadDim == 192 ? 128 : kHeadDim;
  // Each query head has its own keys then, which second-level caches hold while its queries follow
  // one another.
  static constexpr bool kHeadsApart = kValueDim != kHeadDim;
  static constexpr int kKeys = kValueDim > 128 ? 64 : 128;
  static constexpr int kPanels = kHeadDim / kPanelElements;
  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;
  // Keys and values have eight rows of each panel beside each other, so that one copy brings
  // tokens with all their elements.
  static constexpr int kRowsBytes = kPanels * kPieceBytes;
  static constexpr int kBytes = kKeys / 8 * kRowsBytes;
  static constexpr int kValueRowsBytes = kValueDim / kPanelElements * kPieceBytes;
  static constexpr int kValueBytes = kKeys / 8 * kValueRowsBytes;
  // Tiles as they are in the cache, by rows.
  static constexpr int kRawStages = kIs8Bit ? (kHeadDim > 128 ? 2 : 3) : 0;
  static constexpr int kRawBytes = kKeys * kHeadDim;
  // Three warpgroups hold their tiles for longer.
  static constexpr int kKeyStages = kGroups == 3 ? 4 : 2;
  static constexpr int kValueStages = kGroups == 3 ? 4 : 2;
  // The base of shared memory is aligned by hand.
  static constexpr int kSharedBytes = 1024 + kQueryBytes + kKeyStages * kBytes +
                                      kValueStages * kValueBytes + kRawStages * kRawBytes;
  // Items that are found ahead of their use. A block that takes them as late as it can leaves the
  // rest to others.
  static constexpr int kItems = kIs8Bit ? 4 : 1;
  static constexpr int kItemReaders =
      kGroups * kGroupThreads + (kIs8Bit ? kGroupThreads : 2 * 32);  // threads
  static constexpr int kNumBarriers =
      2 * kGroups + 2 * kKeyStages + 2 * kValueStages + kRawStages + 2 * kItems;
};

// Addresses of a block's shared memory.
template <typename KV, int kHeadDim>
struct Buffers {
  using Tile = PrefillTile<KV, kHeadDim>;

  uint32_t base;
  uint32_t barriers;
  Item* items;  // [Tile::kItems]

  // The queries of a warpgroup: its rows of each panel.
  __device__ uint32_t queries(int group) const {
    return base + group * kGroupRows * kPanelRowBytes;
  }
  __device__ uint32_t keys(int stage) const {
    return base + Tile::kQueryBytes + stage * Tile::kBytes;
  }
  __device__ uint32_t values(int stage) const {
    return keys(Tile::kKeyStages) + stage * Tile::kValueBytes;
  }
  __device__ uint32_t raw(int stage) const {
    return values(Tile::kValueStages) + stage * Tile::kRawBytes;
  }
  __device__ uint32_t queries_full(int group) const { return barriers + group * 8; }
  __device__ uint32_t queries_empty(int group) const { return queries_full(Tile::kGroups + group); }
  __device__ uint32_t keys_full(int stage) const { return queries_empty(Tile::kGroups + stage); }
  __device__ uint32_t keys_empty(int stage) const { return keys_full(Tile::kKeyStages + stage); }
  __device__ uint32_t values_full(int stage) const { return keys_empty(Tile::kKeyStages + stage); }
  __device__ uint32_t values_empty(int stage) const {
    return values_full(Tile::kValueStages + stage);
  }
  __device__ uint32_t raw_full(int stage) const { return values_empty(Tile::kValueStages + stage); }
  __device__ uint32_t item_full(int slot) const { return raw_full(Tile::kRawStages + slot); }
  __device__ uint32_t item_empty(int slot) const { return item_full(Tile::kItems + slot); }
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

// Element i of thread c of four becomes element c of thread i.
__device__ __forceinline__ uint4 transpose_of_four(uint32_t (&m)[4], int c) {
  const bool odd = c & 1;
  const bool high = c & 2;
  uint32_t sent = odd ? m[0] : m[1];
  uint32_t received = __shfl_xor_sync(kAllLanes, sent, 1);
  (odd ? m[0] : m[1]) = received;
  sent = odd ? m[2] : m[3];
  received = __shfl_xor_sync(kAllLanes, sent, 1);
  (odd ? m[2] : m[3]) = received;
  sent = high ? m[0] : m[2];
  received = __shfl_xor_sync(kAllLanes, sent, 2);
  (high ? m[0] : m[2]) = received;
  sent = high ? m[1] : m[3];
  received = __shfl_xor_sync(kAllLanes, sent, 2);
  (high ? m[1] : m[3]) = received;
  return {m[0], m[1], m[2], m[3]};
}

// Takes items from those that no block has taken yet and leaves them in shared memory. All lanes of
// one warp call it together.
template <typename KV, int kHeadDim>
class ItemFinder {
 public:
  using Tile = PrefillTile<KV, kHeadDim>;

  __device__ ItemFinder(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers)
      : args_(args), buffers_(buffers) {}

  // Returns the item that it has put there; the last one has no sequence.
  __device__ Item put_next() {
    wait_for(buffers_.item_empty(slot_.stage), slot_.parity ^ 1);
    const Item item = find(next_number());
    if ((threadIdx.x & 31) == 0) {
      buffers_.items[slot_.stage] = item;
      arrive(buffers_.item_full(slot_.stage));
    }
    slot_.advance();
    return item;
  }

 private:
  __device__ int next_number() const {
    int number = 0;
    if ((threadIdx.x & 31) == 0) {
      number = atomicAdd(args_.counter, 1);
    }
    return __shfl_sync(kAllLanes, number, 0);
  }

  // Items are numbered sequence by sequence: all heads of a row block, or all row blocks of a head.
  __device__ Item find(int number) {
    const AttentionArgs& params = args_.params;
    const int heads_together = Tile::kHeadsApart ? 1 : params.num_heads;
    const int heads_apart = Tile::kHeadsApart ? params.num_heads : 1;
    const auto count = [&](int sequence) {
      const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
      const bool skipped = num_queries < args_.min_queries || params.seq_lens[sequence] <= 0;
      return skipped ? 0 : (num_queries + Tile::kRows - 1) / Tile::kRows * heads_apart;
    };
    const int row_block = number / heads_together;
    Item item;
    item.sequence = -1;
    if (!cursor_.find(row_block, params.num_sequences, count)) {
      // Every block takes one number too many; the last of them leaves the counter as it was.
      const int last = cursor_.num_items() * heads_together + static_cast<int>(gridDim.x) - 1;
      if (number == last && (threadIdx.x & 31) == 0) {
        *args_.counter = 0;
      }
      return item;
    }
    item.sequence = cursor_.sequence;
    const int first_token = params.query_start[item.sequence];
    const int num_queries = params.query_start[item.sequence + 1] - first_token;
    item.seq_len = params.seq_lens[item.sequence];
    const int num_blocks = (num_queries + Tile::kRows - 1) / Tile::kRows;
    int block = cursor_.item_of_sequence;
    item.head = number - row_block * heads_together;
    if constexpr (Tile::kHeadsApart) {
      item.head = block / num_blocks;
      block -= item.head * num_blocks;
    }
    // The last queries see most keys, so they come first.
    const int first_query = (num_blocks - 1 - block) * Tile::kRows;
    item.first_token = first_token + first_query;
    item.num_queries = min(Tile::kRows, num_queries - first_query);
    item.position = item.seq_len - num_queries + first_query;
    item.first_key = first_visible_key(item.position, params.sliding_window);
    item.first_tile = item.first_key / Tile::kKeys;
    item.last_tile = (item.position + item.num_queries - 1) / Tile::kKeys;
    return item;
  }

  const PrefillArgs& args_;
  const Buffers<KV, kHeadDim>& buffers_;
  SequenceCursor cursor_;
  RingPosition<Tile::kItems> slot_;
};

// The items of a block, one after the other. All lanes of a warp call it together.
template <typename KV, int kHeadDim>
class ItemReader {
 public:
  __device__ explicit ItemReader(const Buffers<KV, kHeadDim>& buffers) : buffers_(buffers) {}

  // False when there is none left. release() comes before the next one.
  __device__ bool read(Item& item) const {
    wait_for(buffers_.item_full(slot_.stage), slot_.parity);
    item = buffers_.items[slot_.stage];
    return item.sequence >= 0;
  }

  // When all readers have, one more item is taken. Each lane says so itself: racecheck does not see
  // that __syncwarp() and one lane's word would order the reads of all.
  __device__ void release() {
    arrive(buffers_.item_empty(slot_.stage));
    slot_.advance();
  }

  __device__ bool next(Item& item) {
    const bool found = read(item);
    release();
    return found;
  }

 private:
  const Buffers<KV, kHeadDim>& buffers_;
  RingPosition<PrefillTile<KV, kHeadDim>::kItems> slot_;
};

}  // namespace atom::ops::attention_device
