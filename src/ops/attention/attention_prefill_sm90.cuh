// Inside the Hopper prefill attention: its shared memory, work items and consumers.
#pragma once

#include "ops/attention/attention_mma.cuh"
#include "ops/attention/attention_wgmma.cuh"
#include "ops/attention/attention_work.cuh"

namespace atom::ops::attention_device {

constexpr int kGroups = 2;  // of consumer warpgroups
constexpr int kGroupThreads = 128;
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kConsumerWarps = kGroups * kGroupThreads / 32;
constexpr int kGroupRows = 64;
constexpr int kRows = kGroups * kGroupRows;
constexpr int kStages = 2;
constexpr int kPanelRowBytes = 128;
constexpr int kPanelElements = 64;
constexpr float kLog2E = 1.4426950408889634f;
// Named barriers; 0 is __syncthreads.
constexpr int kTurnBarrier = 1;   // + consumer group
constexpr int kClearBarrier = 3;  // + consumer group
constexpr int kProducerBarrier = 5;

struct PrefillArgs {
  AttentionGpuParams params;
  int min_queries;
  int box_tokens;  // that one copy takes from a block
  CUtensorMap queries;
  CUtensorMap keys;
  CUtensorMap values;
};

// A tile of keys or values is expanded to 16-bit elements where the cache has 8-bit ones.
template <typename KV, int kHeadDim>
struct PrefillTile {
  static constexpr bool kIs8Bit = std::is_same_v<KV, Float8E4m3>;
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
  static constexpr int kNumBarriers = 2 + 4 * kStages + kRawStages;
};

// Addresses of a block's shared memory.
template <typename KV, int kHeadDim>
struct Buffers {
  using Tile = PrefillTile<KV, kHeadDim>;

  uint32_t base;
  uint32_t barriers;

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
};

// kRows consecutive queries of one sequence and head, and the tiles of keys that any of them sees.
struct Item {
  int sequence;
  int head;
  int first_token;  // of the item's queries
  int num_queries;
  int position;  // of the first query
  int seq_len;
  int first_key;
  int first_tile;
  int last_tile;
};

// A block's items, in an order that gives all blocks about the same work when one long sequence is
// alone. All lanes of a warp call it together.
template <int kTileKeys>
class ItemWalk {
 public:
  __device__ bool next(const PrefillArgs& args, Item& item) {
    const AttentionGpuParams& params = args.params;
    const int place = (round_ & 1) ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const int index = round_ * gridDim.x + place;
    ++round_;
    const auto count = [&](int sequence) {
      const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
      const bool skipped = num_queries < args.min_queries || params.seq_lens[sequence] <= 0;
      return skipped ? 0 : (num_queries + kRows - 1) / kRows;
    };
    const int row_block = index / params.num_heads;
    if (!cursor_.find(row_block, params.num_sequences, count)) {
      return false;
    }
    item.sequence = cursor_.sequence;
    item.head = index - row_block * params.num_heads;
    const int first_token = params.query_start[item.sequence];
    const int num_queries = params.query_start[item.sequence + 1] - first_token;
    item.seq_len = params.seq_lens[item.sequence];
    // The last queries see most keys, so they come first.
    const int first_query =
        ((num_queries + kRows - 1) / kRows - 1 - cursor_.item_of_sequence) * kRows;
    item.first_token = first_token + first_query;
    item.num_queries = min(kRows, num_queries - first_query);
    item.position = item.seq_len - num_queries + first_query;
    item.first_key = first_visible_key(item.position, params.sliding_window);
    item.first_tile = item.first_key / kTileKeys;
    item.last_tile = (item.position + item.num_queries - 1) / kTileKeys;
    return true;
  }

 private:
  SequenceCursor cursor_;
  int round_ = 0;
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

// A warpgroup. Thread (w, g, c) = (warp, lane / 4, lane % 4) has rows 16w + g and 16w + g + 8, and
// columns 2c and 2c + 1 of each 8.
template <typename T, typename KV, int kHeadDim>
class Consumer {
 public:
  using Tile = PrefillTile<KV, kHeadDim>;

  __device__ __forceinline__ Consumer(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers)
      : args_(args),
        buffers_(buffers),
        group_(__shfl_sync(kAllLanes, threadIdx.x / kGroupThreads - 1, 0)) {}

  __device__ __forceinline__ void run() {
    const AttentionGpuParams& params = args_.params;
    const float scale_log2 = params.scale * params.k_scale * kLog2E;
    ItemWalk<Tile::kKeys> walk;
    Item item;
    uint32_t query_parity = 0;
    if (group_ == 1) {
      named_barrier_arrive<2 * kGroupThreads>(kTurnBarrier);  // group 0 is the first
    }
    while (walk.next(args_, item)) {
      float scores[Tile::kKeys / 2];
      float out[kHeadDim / 2];
      uint32_t weights[Tile::kKeys / 4];
      float maximum[2] = {-INFINITY, -INFINITY};
      float sum[2] = {0, 0};
      float correction[2];

      wait_for(buffers_.queries_full(), query_parity);
      query_parity ^= 1;
      wait_for(buffers_.keys_full(keys_.stage), keys_.parity);
      begin_products();
      multiply_keys(scores);
      commit_products();
      wait_for_products<0>();
      pin(scores);
      release(buffers_.keys_empty(keys_.stage));
      keys_.advance();
      mask(scores, item, item.last_tile);
      softmax(scores, maximum, sum, correction, scale_log2);
      pack_weights(scores, weights);
      bool first = true;
      for (int tile = item.last_tile - 1; tile >= item.first_tile; --tile) {
        wait_for(buffers_.keys_full(keys_.stage), keys_.parity);
        wait_for(buffers_.values_full(values_.stage), values_.parity);
        clear_unwritten(item, tile + 1);
        named_barrier_wait<2 * kGroupThreads>(kTurnBarrier + group_);
        begin_products();
        multiply_keys(scores);
        commit_products();
        multiply_values(out, weights, !first);
        commit_products();
        named_barrier_arrive<2 * kGroupThreads>(kTurnBarrier + (group_ ^ 1));
        wait_for_products<1>();
        pin(scores);
        release(buffers_.keys_empty(keys_.stage));
        keys_.advance();
        mask(scores, item, tile);
        softmax(scores, maximum, sum, correction, scale_log2);
        wait_for_products<0>();
        pin(out);
        release(buffers_.values_empty(values_.stage));
        values_.advance();
        rescale(out, correction);
        pack_weights(scores, weights);
        first = false;
      }
      release(buffers_.queries_empty());
      wait_for(buffers_.values_full(values_.stage), values_.parity);
      clear_unwritten(item, item.first_tile);
      begin_products();
      multiply_values(out, weights, !first);
      commit_products();
      wait_for_products<0>();
      pin(out);
      release(buffers_.values_empty(values_.stage));
      values_.advance();
      store(out, item, maximum, sum, scale_log2);
    }
  }

 private:
  __device__ __forceinline__ void release(uint32_t barrier) const {
    if ((threadIdx.x & 31) == 0) {
      arrive(barrier);
    }
  }

  __device__ __forceinline__ void multiply_keys(float (&scores)[Tile::kKeys / 2]) const {
    const uint32_t queries =
        shared_matrix(buffers_.queries() + group_ * kGroupRows * kPanelRowBytes, 0);
    const uint32_t keys = shared_matrix(buffers_.keys(keys_.stage), 0);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const int panel = k / 4;
      const int byte = k % 4 * 32;
      product_of_shared<T, Tile::kKeys>(
          scores,
          queries + bytes_of_matrix(panel * Tile::kQueryPanelBytes + byte),
          keys + bytes_of_matrix(panel * Tile::kPanelBytes + byte),
          k > 0);
    }
  }

  __device__ __forceinline__ void multiply_values(float (&out)[kHeadDim / 2],
                                                  const uint32_t (&weights)[Tile::kKeys / 4],
                                                  bool accumulate) const {
    const uint32_t values = shared_matrix(buffers_.values(values_.stage), Tile::kPanelBytes);
#pragma unroll
    for (int k = 0; k < Tile::kKeys / 16; ++k) {
      product_of_registers<T, kHeadDim>(out,
                                        weights + k * 4,
                                        values + bytes_of_matrix(k * 16 * kPanelRowBytes),
                                        accumulate || k > 0);
    }
  }

  // Zeroes the tile's values that no token has written or that were not loaded: a weight of zero
  // would not hide a NaN there.
  __device__ __forceinline__ void clear_unwritten(const Item& item, int tile) const {
    const int first = tile * Tile::kKeys;
    const int loaded = item.first_key / args_.box_tokens * args_.box_tokens;
    if (first >= loaded && first + Tile::kKeys <= item.seq_len) {
      return;
    }
    const uint32_t values = buffers_.values(values_.stage);
    for (int i = threadIdx.x % kGroupThreads; i < Tile::kBytes / 16; i += kGroupThreads) {
      const int key = first + i / (kPanelRowBytes / 16) % Tile::kKeys;
      if (key < loaded || key >= item.seq_len) {
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + i * 16), "r"(0)
                     : "memory");
      }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    named_barrier_wait<kGroupThreads>(kClearBarrier + group_);
  }

  __device__ __forceinline__ void mask(float (&scores)[Tile::kKeys / 2],
                                       const Item& item,
                                       int tile) const {
    const int first_key = tile * Tile::kKeys;
    const int first_position = item.position + group_ * kGroupRows;
    const int last_position = first_position + kGroupRows - 1;
    const int window = args_.params.sliding_window;
    const bool future = first_key + Tile::kKeys - 1 > first_position;
    const bool past = window != 0 && first_key <= last_position - window;
    if (!future && !past) {
      return;
    }
    const int lane = threadIdx.x & 31;
    const int row = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 2; ++i) {
      const int key = first_key + i / 4 * 8 + (lane & 3) * 2 + (i & 1);
      const int position = first_position + row + (i & 2) * 4;
      const bool visible = key <= position && (window == 0 || key > position - window);
      scores[i] = visible ? scores[i] : -INFINITY;
    }
  }

  // Replaces scores by their weights against the new maximum. `correction` brings what was added
  // before to it. Each thread's sum is over its own keys.
  __device__ __forceinline__ void softmax(float (&scores)[Tile::kKeys / 2],
                                          float (&maximum)[2],
                                          float (&sum)[2],
                                          float (&correction)[2],
                                          float scale_log2) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float top = maximum[j];
#pragma unroll
      for (int i = 0; i < Tile::kKeys / 2; i += 4) {
        top = fmaxf(top, fmaxf(scores[i + j * 2], scores[i + j * 2 + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float base = top == -INFINITY ? 0.f : top * scale_log2;
      correction[j] = exp2_fast(fmaf(maximum[j], scale_log2, -base));
      maximum[j] = top;
      float tile_sum = 0;
#pragma unroll
      for (int i = 0; i < Tile::kKeys / 2; i += 4) {
#pragma unroll
        for (int k = i + j * 2; k < i + j * 2 + 2; ++k) {
          scores[k] = exp2_fast(fmaf(scores[k], scale_log2, -base));
          tile_sum += scores[k];
        }
      }
      sum[j] = sum[j] * correction[j] + tile_sum;
    }
  }

  // The layout of the scores is that of the left operand of the second product.
  static __device__ __forceinline__ void pack_weights(const float (&scores)[Tile::kKeys / 2],
                                                      uint32_t (&weights)[Tile::kKeys / 4]) {
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 4; ++i) {
      weights[i] = pack<T>(scores[i * 2], scores[i * 2 + 1]);
    }
  }

  static __device__ __forceinline__ void rescale(float (&out)[kHeadDim / 2],
                                                 const float (&correction)[2]) {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) {
      out[i] *= correction[(i & 2) / 2];
    }
  }

  __device__ __forceinline__ void store(const float (&out)[kHeadDim / 2],
                                        const Item& item,
                                        const float (&maximum)[2],
                                        const float (&sum)[2],
                                        float scale_log2) const {
    const AttentionGpuParams& params = args_.params;
    const int lane = threadIdx.x & 31;
    const int c = lane & 3;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float total = sum[j];
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      float factor = params.v_scale / total;
      if (params.sinks != nullptr) {
        const float sink = params.sinks[item.head] * kLog2E;
        const float scaled = maximum[j] * scale_log2;
        const float top = fmaxf(scaled, sink);
        const float shift = exp2_fast(scaled - top);
        factor = params.v_scale * shift / (total * shift + exp2_fast(sink - top));
      }
      const int row =
          group_ * kGroupRows + threadIdx.x % kGroupThreads / 32 * 16 + lane / 4 + j * 8;
      T* target = static_cast<T*>(params.out) + (item.first_token + row) * params.out_token_stride +
                  item.head * params.out_head_stride;
      const bool valid = row < item.num_queries;
      // Four threads have the pairs 0 .. 3 of each 8 elements; of 32 elements, thread c collects
      // the 8 from 8c on.
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n += 4) {
        uint32_t own[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          own[i] =
              pack<T>(out[(n + i) * 4 + j * 2] * factor, out[(n + i) * 4 + j * 2 + 1] * factor);
        }
        const uint4 bits = transpose_of_four(own, c);
        if (valid) {
          *reinterpret_cast<uint4*>(target + n * 8 + c * 8) = bits;
        }
      }
    }
  }

  // Element i of thread c of four becomes element c of thread i.
  static __device__ __forceinline__ uint4 transpose_of_four(uint32_t (&m)[4], int c) {
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

  const PrefillArgs& args_;
  const Buffers<KV, kHeadDim>& buffers_;
  const int group_;
  RingPosition<kStages> keys_;
  RingPosition<kStages> values_;
};

}  // namespace atom::ops::attention_device
