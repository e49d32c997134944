// Persistent blocks of one loading warp and two computing warpgroups, each with 64 queries of one
// head. A warpgroup computes the scores of the next tile and adds the values of the last one while
// it takes the softmax, and the two warpgroups take turns at the matrix units (the schedule of
// FlashAttention-3, Shah et al. 2024). Tiles of keys begin at multiples of their size and come last
// first; one that a query does not see leaves it as it is, bit for bit.
#include "ops/attention/attention_prefill_sm90.h"

#include "ops/attention/attention_wgmma.cuh"
#include "ops/attention/attention_work.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

constexpr int kGroups = 2;  // of consumer warpgroups
constexpr int kGroupThreads = 128;
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kConsumerWarps = kGroups * kGroupThreads / 32;
constexpr int kGroupRows = 64;
constexpr int kRows = kGroups * kGroupRows;
constexpr int kStages = 2;
constexpr int kPanelRowBytes = 128;
constexpr int kPanelElements = 64;
constexpr int kProducerRegisters = 40;
constexpr int kConsumerRegisters = 232;
constexpr float kLog2E = 1.4426950408889634f;
// Named barriers; 0 is __syncthreads.
constexpr int kTurnBarrier = 1;   // + consumer group
constexpr int kClearBarrier = 3;  // + consumer group

struct PrefillArgs {
  AttentionGpuParams params;
  int min_queries;
  int box_tokens;  // that one copy takes from a block
  CUtensorMap queries;
  CUtensorMap keys;
  CUtensorMap values;
};

template <int kHeadDim>
struct PrefillTile {
  static constexpr int kKeys = kHeadDim > 128 ? 64 : 128;
  static constexpr int kPanels = kHeadDim / kPanelElements;
  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;
  static constexpr int kBytes = kPanels * kPanelBytes;
  // The base of shared memory is aligned by hand.
  static constexpr int kSharedBytes = 1024 + kQueryBytes + 2 * kStages * kBytes;
};

// Addresses of a block's shared memory.
template <int kHeadDim>
struct Buffers {
  using Tile = PrefillTile<kHeadDim>;

  uint32_t base;
  uint32_t barriers;

  __device__ uint32_t queries() const { return base; }
  __device__ uint32_t keys(int stage) const {
    return base + Tile::kQueryBytes + stage * Tile::kBytes;
  }
  __device__ uint32_t values(int stage) const { return keys(kStages + stage); }
  __device__ uint32_t queries_full() const { return barriers; }
  __device__ uint32_t queries_empty() const { return barriers + 8; }
  __device__ uint32_t keys_full(int stage) const { return barriers + 16 + stage * 8; }
  __device__ uint32_t keys_empty(int stage) const { return keys_full(kStages + stage); }
  __device__ uint32_t values_full(int stage) const { return keys_full(2 * kStages + stage); }
  __device__ uint32_t values_empty(int stage) const { return keys_full(3 * kStages + stage); }
};
constexpr int kNumBarriers = 2 + 4 * kStages;

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
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

template <int kHeadDim>
class Producer {
 public:
  using Tile = PrefillTile<kHeadDim>;

  __device__ Producer(const PrefillArgs& args, const Buffers<kHeadDim>& buffers)
      : args_(args), buffers_(buffers) {}

  // By one warp.
  __device__ void run() {
    ItemWalk<Tile::kKeys> walk;
    Item item;
    uint32_t query_parity = 0;
    while (walk.next(args_, item)) {
      const int kv_head = item.head / (args_.params.num_heads / args_.params.num_kv_heads);
      int slot = first_slot(item, item.last_tile);
      wait_for(buffers_.queries_empty(), query_parity ^ 1);
      query_parity ^= 1;
      load_queries(item);
      load_tile(&args_.keys, kv_head, slot, keys_, buffers_.keys_full(0), buffers_.keys(0));
      for (int tile = item.last_tile - 1; tile >= item.first_tile; --tile) {
        const int next_slot = first_slot(item, tile);
        load_tile(&args_.keys, kv_head, next_slot, keys_, buffers_.keys_full(0), buffers_.keys(0));
        load_tile(
            &args_.values, kv_head, slot, values_, buffers_.values_full(0), buffers_.values(0));
        slot = next_slot;
      }
      load_tile(&args_.values, kv_head, slot, values_, buffers_.values_full(0), buffers_.values(0));
    }
  }

 private:
  // Where in the cache this lane's part of the tile begins, or -1: nothing of it is to be loaded.
  __device__ int first_slot(const Item& item, int tile) const {
    const int part = (threadIdx.x & 31) * args_.box_tokens;
    const int key = tile * Tile::kKeys + part;
    if (part >= Tile::kKeys || key >= item.seq_len || key + args_.box_tokens <= item.first_key) {
      return -1;
    }
    const int page = key / args_.params.block_size;
    const int32_t block =
        args_.params.block_tables[item.sequence * args_.params.block_table_stride + page];
    return block * args_.params.block_size + (key - page * args_.params.block_size);
  }

  __device__ void load_queries(const Item& item) const {
    if ((threadIdx.x & 31) == 0) {
      arrive_expecting(buffers_.queries_full(), Tile::kQueryBytes);
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        copy_box(buffers_.queries() + panel * Tile::kQueryPanelBytes,
                 &args_.queries,
                 panel * kPanelElements,
                 item.head,
                 item.first_token,
                 buffers_.queries_full());
      }
    }
  }

  // `full` and `target` are those of stage 0.
  __device__ void load_tile(const CUtensorMap* map,
                            int kv_head,
                            int slot,
                            RingPosition& ring,
                            uint32_t full,
                            uint32_t target) const {
    const int lane = threadIdx.x & 31;
    const int num_boxes = __popc(__ballot_sync(kAllLanes, slot >= 0));
    const int box_bytes = args_.box_tokens * kPanelRowBytes;
    full += ring.stage * 8;
    target += ring.stage * Tile::kBytes;
    wait_for(full + kStages * 8, ring.parity ^ 1);  // empty
    if (lane == 0) {
      arrive_expecting(full, num_boxes * box_bytes * Tile::kPanels);
    }
    __syncwarp();
    if (slot >= 0) {
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        copy_box(target + panel * Tile::kPanelBytes + lane * box_bytes,
                 map,
                 panel * kPanelElements,
                 kv_head,
                 slot,
                 full);
      }
    }
    ring.advance();
  }

  const PrefillArgs& args_;
  const Buffers<kHeadDim>& buffers_;
  RingPosition keys_;
  RingPosition values_;
};

// A warpgroup. Thread (w, g, c) = (warp, lane / 4, lane % 4) has rows 16w + g and 16w + g + 8, and
// columns 2c and 2c + 1 of each 8.
template <typename T, int kHeadDim>
class Consumer {
 public:
  using Tile = PrefillTile<kHeadDim>;

  __device__ __forceinline__ Consumer(const PrefillArgs& args, const Buffers<kHeadDim>& buffers)
      : args_(args),
        buffers_(buffers),
        group_(__shfl_sync(kAllLanes, threadIdx.x / kGroupThreads - 1, 0)) {}

  __device__ __forceinline__ void run() {
    const AttentionGpuParams& params = args_.params;
    const float scale_log2 = params.scale * kLog2E;
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
      correction[j] = exp2_approx(fmaf(maximum[j], scale_log2, -base));
      maximum[j] = top;
      float tile_sum = 0;
#pragma unroll
      for (int i = 0; i < Tile::kKeys / 2; i += 4) {
#pragma unroll
        for (int k = i + j * 2; k < i + j * 2 + 2; ++k) {
          scores[k] = exp2_approx(fmaf(scores[k], scale_log2, -base));
          tile_sum += scores[k];
        }
      }
      sum[j] = sum[j] * correction[j] + tile_sum;
    }
  }

  static __device__ __forceinline__ float exp2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t bits;
    if constexpr (std::is_same_v<T, __half>) {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    } else {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    }
    return bits;
  }

  // The layout of the scores is that of the left operand of the second product.
  static __device__ __forceinline__ void pack_weights(const float (&scores)[Tile::kKeys / 2],
                                                      uint32_t (&weights)[Tile::kKeys / 4]) {
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 4; ++i) {
      weights[i] = pack(scores[i * 2], scores[i * 2 + 1]);
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
      float factor = 1 / total;
      if (params.sinks != nullptr) {
        const float sink = params.sinks[item.head] * kLog2E;
        const float scaled = maximum[j] * scale_log2;
        const float top = fmaxf(scaled, sink);
        const float shift = exp2_approx(scaled - top);
        factor = shift / (total * shift + exp2_approx(sink - top));
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
          own[i] = pack(out[(n + i) * 4 + j * 2] * factor, out[(n + i) * 4 + j * 2 + 1] * factor);
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
  const Buffers<kHeadDim>& buffers_;
  const int group_;
  RingPosition keys_;
  RingPosition values_;
};

template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    attention_prefill_kernel(const __grid_constant__ PrefillArgs args) {
  extern __shared__ char shared[];
  __shared__ __align__(8) uint64_t barriers[kNumBarriers];
  Buffers<kHeadDim> buffers;
  buffers.base = (static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + 1023) & ~1023u;
  buffers.barriers = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
  if (threadIdx.x == 0) {
    init_barrier(buffers.queries_full(), 1);
    init_barrier(buffers.queries_empty(), kConsumerWarps);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(buffers.keys_full(stage), 1);
      init_barrier(buffers.values_full(stage), 1);
      init_barrier(buffers.keys_empty(stage), kConsumerWarps);
      init_barrier(buffers.values_empty(stage), kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x < 32) {
      Producer<kHeadDim>(args, buffers).run();
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Consumer<T, kHeadDim>(args, buffers).run();
  }
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// The driver's function, without linking the driver; null where there is none.
EncodeTiled find_encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
  const bool found = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
  return found ? reinterpret_cast<EncodeTiled>(function) : nullptr;
}

// Map of [tokens, heads, head_dim]; a box is `box_tokens` rows of a panel of one head.
bool encode_map(CUtensorMap* map,
                AttentionElement element,
                const void* data,
                const int64_t (&sizes)[3],
                int64_t token_stride,
                int64_t head_stride,
                int box_tokens) {
  static const EncodeTiled encode = find_encode_tiled();
  if (encode == nullptr) {
    return false;
  }
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(sizes[2]),
                              static_cast<cuuint64_t>(sizes[1]),
                              static_cast<cuuint64_t>(sizes[0])};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(head_stride * 2),
                                 static_cast<cuuint64_t>(token_stride * 2)};
  const cuuint32_t box[3] = {kPanelElements, 1, static_cast<cuuint32_t>(box_tokens)};
  const cuuint32_t element_strides[3] = {1, 1, 1};
  const CUtensorMapDataType type = element == AttentionElement::kBfloat16
                                       ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(map,
                type,
                3,
                const_cast<void*>(data),
                dims,
                strides,
                box,
                element_strides,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool encode_maps(const AttentionGpuParams& params, PrefillArgs& args) {
  const int64_t slots = int64_t{params.num_blocks} * params.block_size;
  const int64_t query_sizes[3] = {params.num_tokens, params.num_heads, params.head_dim};
  const int64_t cache_sizes[3] = {slots, params.num_kv_heads, params.head_dim};
  const int64_t slot_stride = int64_t{params.num_kv_heads} * params.head_dim;
  return encode_map(&args.queries,
                    params.element,
                    params.q,
                    query_sizes,
                    params.q_token_stride,
                    params.q_head_stride,
                    kRows) &&
         encode_map(&args.keys,
                    params.element,
                    params.k_cache,
                    cache_sizes,
                    slot_stride,
                    params.head_dim,
                    args.box_tokens) &&
         encode_map(&args.values,
                    params.element,
                    params.v_cache,
                    cache_sizes,
                    slot_stride,
                    params.head_dim,
                    args.box_tokens);
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

template <typename T, int kHeadDim>
gpuError_t launch_kernel(const AttentionGpuParams& params, int min_queries, gpuStream_t stream) {
  using Tile = PrefillTile<kHeadDim>;
  PrefillArgs args;
  args.params = params;
  args.min_queries = min_queries;
  args.box_tokens = params.block_size < Tile::kKeys ? params.block_size : Tile::kKeys;
  const int64_t max_items =
      (int64_t{params.num_tokens} / kRows + params.num_sequences) * params.num_heads;
  if (max_items == 0) {
    return cudaSuccess;
  }
  if (!encode_maps(params, args)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = attention_prefill_kernel<T, kHeadDim>;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (error != cudaSuccess) {
    return error;
  }
  const int64_t max_blocks = device_attribute(cudaDevAttrMultiProcessorCount);
  const int blocks = static_cast<int>(max_items < max_blocks ? max_items : max_blocks);
  kernel<<<blocks, kThreads, Tile::kSharedBytes, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
gpuError_t launch_for_head_dim(const AttentionGpuParams& params,
                               int min_queries,
                               gpuStream_t stream) {
  switch (params.head_dim) {
    case 64:
      return launch_kernel<T, 64>(params, min_queries, stream);
    case 128:
      return launch_kernel<T, 128>(params, min_queries, stream);
    case 256:
      return launch_kernel<T, 256>(params, min_queries, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

bool supports_attention_prefill_sm90(const AttentionGpuParams& params) {
  const bool head_dim = params.head_dim == 64 || params.head_dim == 128 || params.head_dim == 256;
  const bool element = (params.element == AttentionElement::kFloat16 ||
                        params.element == AttentionElement::kBfloat16) &&
                       params.kv_element == params.element;
  const bool block_size = params.block_size == 16 || params.block_size == 32 ||
                          params.block_size == 64 || params.block_size % 128 == 0;
  return head_dim && element && block_size && params.scale > 0 && params.num_kv_heads > 0 &&
         params.num_heads % params.num_kv_heads == 0 &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

gpuError_t launch_attention_prefill_sm90(const AttentionGpuParams& params,
                                         int32_t min_queries,
                                         gpuStream_t stream) {
  return params.element == AttentionElement::kBfloat16
             ? launch_for_head_dim<gpu_bfloat16>(params, min_queries, stream)
             : launch_for_head_dim<__half>(params, min_queries, stream);
}

}  // namespace atom::ops
