// Each warp streams its own tiles of keys and values through its own stages of shared memory, so
// that loads never wait for another warp; the warps of a block meet once per split. The products
// are taken transposed (keys or head_dim as the 16 rows, query heads as the 8 columns), which
// wastes least of the matrix instructions for groups of up to 8 heads.
#include "ops/attention/attention_decode_split_cuda.h"

#include "ops/attention/attention_mma.cuh"
#include "ops/attention/attention_work.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kMaxSplits = 32;
// The end of a split costs a block several microseconds, as much as reading a few hundred keys.
constexpr int kMinSplitKeys = 512;
// Splits begin at multiples of this position, hence all tiles at multiples of their size.
constexpr int kSplitAlignment = 64;
constexpr int kMaxHeadsPerItem = 16;
constexpr float kLog2E = 1.4426950408889634f;

// How a row's keys are divided: by its position and the window alone.
struct Splits {
  int first_key;  // visible
  int begin;      // of the first split
  int split_keys;
  int count;
};

__host__ __device__ Splits splits_of(int seq_len, int sliding_window) {
  Splits splits;
  splits.first_key = first_visible_key(seq_len - 1, sliding_window);
  splits.begin = splits.first_key / kSplitAlignment * kSplitAlignment;
  splits.split_keys = kMinSplitKeys;
  while (splits.split_keys * kMaxSplits < seq_len - splits.begin) {
    splits.split_keys *= 2;
  }
  splits.count = (seq_len - splits.begin + splits.split_keys - 1) / splits.split_keys;
  return splits;
}

struct DecodeArgs {
  AttentionGpuParams params;
  int heads_per_item;       // query heads of an item, at most kMaxHeadsPerItem
  int items_per_kv_head;    // to cover its query heads
  int max_splits;           // stride of the partial results
  float2* partial_softmax;  // [num_sequences, num_heads, max_splits] maximum and sum
  float* partial_out;       // [num_sequences, num_heads, max_splits, head_dim]
  int32_t* counters;        // [num_sequences, num_kv_heads * items_per_kv_head] finished splits
};

template <typename T, typename KV, int kHeadDim, int kQueryTiles>
struct DecodeTile {
  static constexpr int kRowBytes = kHeadDim * sizeof(KV);
  static constexpr int kKeys = kRowBytes >= 256 ? 16 : 4096 / kRowBytes;
  static constexpr int kBytes = kKeys * kRowBytes;
  static constexpr int kStages = kBytes > 4096 && kQueryTiles > 1 ? 2 : 3;
  static constexpr int kLanesPerRow = kRowBytes / 16;
  static constexpr int kRowsPerCopy = 32 / kLanesPerRow;
  static constexpr int kCopies = kKeys / kRowsPerCopy;
  static constexpr int kKeysPerLane = (kKeys + 31) / 32;
  static constexpr int kKeyTiles = kKeys / 16;
  static constexpr int kDimTiles = kHeadDim / 16;
  static constexpr int kSharedBytes = kWarps * kStages * 2 * kBytes;
};

// One split of one row for the query heads of one item.
struct Item {
  int sequence;
  int head_item;
  int kv_head;
  int first_head;
  int num_heads;
  int seq_len;
  int first_key;
  int begin;
  int num_keys;  // from begin on
  int split;
  int num_splits;
};

// A block's items, one after another. All lanes of a warp call it together.
class ItemWalk {
 public:
  __device__ bool next(const DecodeArgs& args, Item& item) {
    const AttentionGpuParams& params = args.params;
    const int head_items = params.num_kv_heads * args.items_per_kv_head;
    const int row = next_ / head_items;
    const auto count = [&](int sequence) {
      const int num_queries = params.query_start[sequence + 1] - params.query_start[sequence];
      const int seq_len = params.seq_lens[sequence];
      return num_queries != 1 || seq_len <= 0 ? 0 : splits_of(seq_len, params.sliding_window).count;
    };
    if (!cursor_.find(row, params.num_sequences, count)) {
      return false;
    }
    item.sequence = cursor_.sequence;
    item.split = cursor_.item_of_sequence;
    item.head_item = next_ - row * head_items;
    item.kv_head = item.head_item / args.items_per_kv_head;
    const int group = params.num_heads / params.num_kv_heads;
    const int head_of_group =
        (item.head_item - item.kv_head * args.items_per_kv_head) * args.heads_per_item;
    item.first_head = item.kv_head * group + head_of_group;
    item.num_heads = min(args.heads_per_item, group - head_of_group);
    item.seq_len = params.seq_lens[item.sequence];
    const Splits splits = splits_of(item.seq_len, params.sliding_window);
    item.first_key = splits.first_key;
    item.begin = splits.begin + item.split * splits.split_keys;
    item.num_keys = min(splits.split_keys, item.seq_len - item.begin);
    item.num_splits = splits.count;
    next_ += gridDim.x;
    return true;
  }

 private:
  SequenceCursor cursor_;
  int next_ = blockIdx.x;
};

// Copies a warp's tiles ahead of their use, across the borders of items.
template <typename Tile>
class TileLoader {
 public:
  __device__ TileLoader(const DecodeArgs& args, uint32_t stages) : args_(args), stages_(stages) {
    done_ = !walk_.next(args_, item_);
    tile_ = threadIdx.x / 32;
    find_tile();
  }

  // Begins the copy of one more tile, if there is one.
  __device__ void load() {
    if (!done_) {
      copy_tile();
      stage_ = stage_ + 1 == Tile::kStages ? 0 : stage_ + 1;
      tile_ += kWarps;
      find_tile();
    }
    commit_copies();
  }

 private:
  __device__ void find_tile() {
    while (!done_ && tile_ * Tile::kKeys >= item_.num_keys) {
      done_ = !walk_.next(args_, item_);
      tile_ = threadIdx.x / 32;
    }
    if (done_) {
      return;
    }
    // Read one tile ahead of the copy that needs them.
    const AttentionGpuParams& params = args_.params;
    const int32_t* table = params.block_tables + item_.sequence * params.block_table_stride;
#pragma unroll
    for (int i = 0; i < Tile::kKeysPerLane; ++i) {
      const int row = i * 32 + (threadIdx.x & 31);
      const int key = item_.begin + tile_ * Tile::kKeys + row;
      const bool visible = key >= item_.first_key && key < item_.seq_len && row < Tile::kKeys;
      const int block = visible ? key / params.block_size : 0;
      offsets_[i] = key - block * params.block_size;
      blocks_[i] = visible ? table[block] : -1;
    }
  }

  __device__ void copy_tile() {
    const int lane = threadIdx.x & 31;
    const int chunk = lane % Tile::kLanesPerRow;
    const int64_t slot_bytes = int64_t{args_.params.num_kv_heads} * Tile::kRowBytes;
    const int64_t head_bytes = int64_t{item_.kv_head} * Tile::kRowBytes + chunk * 16;
    const char* keys = static_cast<const char*>(args_.params.k_cache) + head_bytes;
    const char* values = static_cast<const char*>(args_.params.v_cache) + head_bytes;
    const uint32_t key_stage = stages_ + stage_ * 2 * Tile::kBytes;
    int slots[Tile::kKeysPerLane];
#pragma unroll
    for (int i = 0; i < Tile::kKeysPerLane; ++i) {
      slots[i] = blocks_[i] < 0 ? -1 : blocks_[i] * args_.params.block_size + offsets_[i];
    }
    int64_t offsets[Tile::kCopies];
    bool visible[Tile::kCopies];
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      const int row = i * Tile::kRowsPerCopy + lane / Tile::kLanesPerRow;
      const int slot = __shfl_sync(kAllLanes, slots[i * Tile::kRowsPerCopy / 32], row & 31);
      visible[i] = slot >= 0;
      offsets[i] = visible[i] ? slot * slot_bytes : 0;
      copy_async(
          key_stage + tile_offset<Tile::kRowBytes>(row, chunk), keys + offsets[i], visible[i]);
    }
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      const int row = i * Tile::kRowsPerCopy + lane / Tile::kLanesPerRow;
      copy_async(key_stage + Tile::kBytes + tile_offset<Tile::kRowBytes>(row, chunk),
                 values + offsets[i],
                 visible[i]);
    }
  }

  const DecodeArgs& args_;
  uint32_t stages_;
  ItemWalk walk_;
  Item item_;
  bool done_;
  int tile_;
  int stage_ = 0;
  int blocks_[Tile::kKeysPerLane];
  int offsets_[Tile::kKeysPerLane];
};

// A warp's part of an item: running maximum and sum, and the unnormalised output.
// Thread (g, c) = (lane / 4, lane % 4) has the columns (query heads) 2c and 2c + 1 of each 8.
template <typename T, typename KV, int kHeadDim, int kQueryTiles>
struct WarpAttention {
  using Tile = DecodeTile<T, KV, kHeadDim, kQueryTiles>;
  using C = Compute<T, KV>;
  static constexpr bool kIs8Bit = std::is_same_v<KV, Float8E4m3>;

  uint32_t q[kQueryTiles][Tile::kDimTiles][2];
  float maximum[kQueryTiles][2];
  float sum[kQueryTiles][2];  // of this thread's keys
  float out[Tile::kDimTiles][kQueryTiles][4];

  __device__ void start(const AttentionGpuParams& params, const Item& item) {
    const int lane = threadIdx.x & 31;
    const int token = params.query_start[item.sequence];
    const int c = lane & 3;
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
      const int head = n * 8 + lane / 4;
      const T* row = static_cast<const T*>(params.q) + token * params.q_token_stride +
                     (item.first_head + head) * params.q_head_stride;
#pragma unroll
      for (int k = 0; k < Tile::kDimTiles; ++k) {
        // 8-bit keys come four to a thread, so the elements of 16 are taken in another order.
        const int low = k * 16 + (kIs8Bit ? c * 4 : c * 2);
        const int high = low + (kIs8Bit ? 2 : 8);
        const bool valid = head < item.num_heads;
        q[n][k][0] = valid ? *reinterpret_cast<const uint32_t*>(row + low) : 0;
        q[n][k][1] = valid ? *reinterpret_cast<const uint32_t*>(row + high) : 0;
      }
    }
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int k = 0; k < Tile::kDimTiles; ++k) {
        q[n][k][0] = convert_pair<C, T>(q[n][k][0]);
        q[n][k][1] = convert_pair<C, T>(q[n][k][1]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          out[k][n][i] = 0;
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        maximum[n][j] = -INFINITY;
        sum[n][j] = 0;
      }
    }
  }

  __device__ void add_tile(uint32_t keys, int first_key, const Item& item, float scale_log2) {
    float s[Tile::kKeyTiles][kQueryTiles][4] = {};
    scores(s, keys);
    const bool all_visible = first_key >= item.first_key && first_key + Tile::kKeys <= item.seq_len;
    const int g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int m = 0; m < Tile::kKeyTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + m * 16 + g + (i / 2) * 8;
        const bool visible = all_visible || (key >= item.first_key && key < item.seq_len);
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
          s[m][n][i] = visible ? s[m][n][i] * scale_log2 : -INFINITY;
        }
      }
    }
    softmax(s);
    uint32_t p[Tile::kKeyTiles][kQueryTiles][2];
#pragma unroll
    for (int m = 0; m < Tile::kKeyTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        p[m][n][0] = transpose_matrix(pack<C>(s[m][n][0], s[m][n][1]));
        p[m][n][1] = transpose_matrix(pack<C>(s[m][n][2], s[m][n][3]));
      }
    }
    add_values(p, keys + Tile::kBytes);
  }

 private:
  // s[keys, heads] = keys q
  __device__ void scores(float (&s)[Tile::kKeyTiles][kQueryTiles][4], uint32_t keys) {
    const int lane = threadIdx.x & 31;
    const int row = ((lane / 8) & 1) * 8 + (lane & 7);
    const int chunk = lane / 16;
#pragma unroll
    for (int m = 0; m < Tile::kKeyTiles; ++m) {
#pragma unroll
      for (int k = 0; k < Tile::kRowBytes / 32; ++k) {
        uint32_t a[4];
        load_matrices(a, keys + tile_offset<Tile::kRowBytes>(m * 16 + row, k * 2 + chunk));
        if constexpr (kIs8Bit) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint32_t expanded[4] = {expand_pair(a[half * 2] & 0xffff),
                                          expand_pair(a[half * 2 + 1] & 0xffff),
                                          expand_pair(a[half * 2] >> 16),
                                          expand_pair(a[half * 2 + 1] >> 16)};
#pragma unroll
            for (int n = 0; n < kQueryTiles; ++n) {
              multiply_add<C>(s[m][n], expanded, q[n][k * 2 + half][0], q[n][k * 2 + half][1]);
            }
          }
        } else {
#pragma unroll
          for (int n = 0; n < kQueryTiles; ++n) {
            multiply_add<C>(s[m][n], a, q[n][k][0], q[n][k][1]);
          }
        }
      }
    }
  }

  // Replaces scores by their weights against the new maximum; brings sum and out to it.
  __device__ void softmax(float (&s)[Tile::kKeyTiles][kQueryTiles][4]) {
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float top = maximum[n][j];
#pragma unroll
        for (int m = 0; m < Tile::kKeyTiles; ++m) {
          top = fmaxf(top, fmaxf(s[m][n][j], s[m][n][j + 2]));
        }
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, offset));
        }
        const float base = top == -INFINITY ? 0.f : top;
        const float correction = exp2_fast(maximum[n][j] - base);
        maximum[n][j] = top;
        sum[n][j] *= correction;
#pragma unroll
        for (int m = 0; m < Tile::kKeyTiles; ++m) {
          s[m][n][j] = exp2_fast(s[m][n][j] - base);
          s[m][n][j + 2] = exp2_fast(s[m][n][j + 2] - base);
          sum[n][j] += s[m][n][j] + s[m][n][j + 2];
        }
#pragma unroll
        for (int k = 0; k < Tile::kDimTiles; ++k) {
          out[k][n][j] *= correction;
          out[k][n][j + 2] *= correction;
        }
      }
    }
  }

  // out[head_dim, heads] += values^T p
  __device__ void add_values(const uint32_t (&p)[Tile::kKeyTiles][kQueryTiles][2],
                             uint32_t values) {
    const int lane = threadIdx.x & 31;
    // 16-bit values: the matrices are (keys 0-7, chunk 0), (0-7, 1), (8-15, 0), (8-15, 1); 8-bit
    // ones, whose chunk holds 16 elements: (0-7, 0), (8-15, 0), (0-7, 1), (8-15, 1).
    const int row = (kIs8Bit ? (lane / 8) & 1 : lane / 16) * 8 + (lane & 7);
    const int chunk = kIs8Bit ? lane / 16 : (lane / 8) & 1;
#pragma unroll
    for (int m = 0; m < Tile::kKeyTiles; ++m) {
#pragma unroll
      for (int k = 0; k < Tile::kRowBytes / 32; ++k) {
        uint32_t a[4];
        load_matrices_transposed(
            a, values + tile_offset<Tile::kRowBytes>(m * 16 + row, k * 2 + chunk));
        if constexpr (kIs8Bit) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            // Bytes 0 and 2 are even elements of head_dim, 1 and 3 odd ones, of two keys.
            const uint32_t low = __byte_perm(a[half * 2], 0, 0x3120);
            const uint32_t high = __byte_perm(a[half * 2 + 1], 0, 0x3120);
            const uint32_t expanded[4] = {expand_pair(low & 0xffff),
                                          expand_pair(low >> 16),
                                          expand_pair(high & 0xffff),
                                          expand_pair(high >> 16)};
#pragma unroll
            for (int n = 0; n < kQueryTiles; ++n) {
              multiply_add<C>(out[k * 2 + half][n], expanded, p[m][n][0], p[m][n][1]);
            }
          }
        } else {
#pragma unroll
          for (int n = 0; n < kQueryTiles; ++n) {
            multiply_add<C>(out[k][n], a, p[m][n][0], p[m][n][1]);
          }
        }
      }
    }
  }
};

// Position of element d of query head `head` in a warp's row of the exchange buffer.
__device__ int exchange_offset(int head, int d, int head_dim) {
  return head * head_dim + (d ^ (((head >> 1) & 3) * 8));
}

struct Exchange {
  float* out;       // [kWarps, heads_per_item, head_dim], see exchange_offset
  float2* softmax;  // [kWarps, kMaxHeadsPerItem] maximum and sum
  float* weights;   // [kMaxHeadsPerItem, kMaxSplits]
};

template <typename Warp, int kHeadDim, int kQueryTiles>
__device__ void write_exchange(const Warp& state,
                               const Item& item,
                               int heads,
                               const Exchange& exchange) {
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
#pragma unroll
  for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float sum = state.sum[n][j];
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, offset);
      }
      const int head = n * 8 + (lane & 3) * 2 + j;
      if (head >= item.num_heads) {
        continue;
      }
      if (g == 0) {
        exchange.softmax[warp * kMaxHeadsPerItem + head] = {state.maximum[n][j], sum};
      }
      float* row = exchange.out + warp * heads * kHeadDim;
#pragma unroll
      for (int k = 0; k < Warp::Tile::kDimTiles; ++k) {
        const int low = k * 16 + (Warp::kIs8Bit ? g * 2 : g);
        const int high = low + (Warp::kIs8Bit ? 1 : 8);
        row[exchange_offset(head, low, kHeadDim)] = state.out[k][n][j];
        row[exchange_offset(head, high, kHeadDim)] = state.out[k][n][j + 2];
      }
    }
  }
}

template <typename T>
__device__ void store_out(
    const AttentionGpuParams& params, const Item& item, int head, int d, float4 value) {
  const int token = params.query_start[item.sequence];
  T* row = static_cast<T*>(params.out) + token * params.out_token_stride +
           (item.first_head + head) * params.out_head_stride;
  *reinterpret_cast<uint2*>(row + d) = {pack<T>(value.x, value.y), pack<T>(value.z, value.w)};
}

__device__ float4 scaled(float4 v, float factor) {
  return {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
}

__device__ void add_scaled(float4& to, float4 v, float factor) {
  to.x += v.x * factor;
  to.y += v.y * factor;
  to.z += v.z * factor;
  to.w += v.w * factor;
}

// The factor that turns weights against `maximum` into the softmax, the sink included.
__device__ float normaliser(const AttentionGpuParams& params, int head, float maximum, float sum) {
  if (params.sinks == nullptr) {
    return params.v_scale / sum;
  }
  const float sink = params.sinks[head] * kLog2E;
  const float top = fmaxf(maximum, sink);
  const float shift = exp2_fast(maximum - top);
  return params.v_scale * shift / (sum * shift + exp2_fast(sink - top));
}

// Joins the warps' parts, into the result or into the split's partial result.
template <typename T, int kHeadDim>
__device__ void join_warps(const DecodeArgs& args, const Item& item, const Exchange& exchange) {
  const AttentionGpuParams& params = args.params;
  for (int i = threadIdx.x; i < item.num_heads * (kHeadDim / 4); i += kThreads) {
    const int head = i / (kHeadDim / 4);
    const int d = i % (kHeadDim / 4) * 4;
    float top = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      top = fmaxf(top, exchange.softmax[warp * kMaxHeadsPerItem + head].x);
    }
    float sum = 0;
    float4 out = {0, 0, 0, 0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float2 part = exchange.softmax[warp * kMaxHeadsPerItem + head];
      const float factor = exp2_fast(part.x - top);
      sum += part.y * factor;
      const float* row = exchange.out + warp * args.heads_per_item * kHeadDim;
      add_scaled(
          out, *reinterpret_cast<const float4*>(row + exchange_offset(head, d, kHeadDim)), factor);
    }
    const int q_head = item.first_head + head;
    if (item.num_splits == 1) {
      store_out<T>(params, item, head, d, scaled(out, normaliser(params, q_head, top, sum)));
      continue;
    }
    const int64_t part =
        (int64_t{item.sequence} * params.num_heads + q_head) * args.max_splits + item.split;
    __stcg(reinterpret_cast<float4*>(args.partial_out + part * kHeadDim + d), out);
    if (d == 0) {
      __stcg(args.partial_softmax + part, make_float2(top, sum));
    }
  }
}

// By the block that finished a row's last split.
template <typename T, int kHeadDim>
__device__ void join_splits(const DecodeArgs& args, const Item& item, const Exchange& exchange) {
  const AttentionGpuParams& params = args.params;
  const int lane = threadIdx.x & 31;
  const int64_t first = int64_t{item.sequence} * params.num_heads + item.first_head;
  for (int head = threadIdx.x / 32; head < item.num_heads; head += kWarps) {
    float2 part = {-INFINITY, 0};
    if (lane < item.num_splits) {
      part = __ldcg(args.partial_softmax + (first + head) * args.max_splits + lane);
    }
    float top = part.x;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, offset));
    }
    const float weight = exp2_fast(part.x - top);
    float sum = part.y * weight;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, offset);
    }
    exchange.weights[head * kMaxSplits + lane] =
        weight * normaliser(params, item.first_head + head, top, sum);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < item.num_heads * (kHeadDim / 4); i += kThreads) {
    const int head = i / (kHeadDim / 4);
    const int d = i % (kHeadDim / 4) * 4;
    const float* parts = args.partial_out + (first + head) * args.max_splits * kHeadDim + d;
    float4 out = {0, 0, 0, 0};
#pragma unroll 16
    for (int split = 0; split < item.num_splits; ++split) {
      add_scaled(out,
                 __ldcg(reinterpret_cast<const float4*>(parts + int64_t{split} * kHeadDim)),
                 exchange.weights[head * kMaxSplits + split]);
    }
    store_out<T>(params, item, head, d, out);
  }
}

// Whether this block finished the last of the row's splits. The counter is then zero again.
__device__ bool is_last_split(const DecodeArgs& args, const Item& item) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    // The barrier and this fence order the whole block's partial results before the count.
    __threadfence();
    int32_t* counter = args.counters +
                       int64_t{item.sequence} * args.params.num_kv_heads * args.items_per_kv_head +
                       item.head_item;
    is_last = atomicAdd(counter, 1) == item.num_splits - 1;
    if (is_last) {
      __threadfence();
      *counter = 0;
    }
  }
  __syncthreads();
  return is_last;
}

template <typename T, typename KV, int kHeadDim, int kQueryTiles>
__global__ void __launch_bounds__(kThreads)
    attention_decode_kernel(const __grid_constant__ DecodeArgs args) {
  using Warp = WarpAttention<T, KV, kHeadDim, kQueryTiles>;
  using Tile = typename Warp::Tile;
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32;
  const uint32_t stages = shared_address(shared) + warp * Tile::kStages * 2 * Tile::kBytes;
  Exchange exchange;
  exchange.out = reinterpret_cast<float*>(shared + Tile::kSharedBytes);
  exchange.softmax =
      reinterpret_cast<float2*>(exchange.out + kWarps * args.heads_per_item * kHeadDim);
  exchange.weights = exchange.out;  // of no use any more when splits are joined

  TileLoader<Tile> loader(args, stages);
  for (int i = 0; i < Tile::kStages - 1; ++i) {
    loader.load();
  }
  const float scale_log2 = args.params.scale * args.params.k_scale * kLog2E;
  ItemWalk walk;
  Item item;
  int stage = 0;
  while (walk.next(args, item)) {
    Warp state;
    state.start(args.params, item);
    for (int tile = warp; tile * Tile::kKeys < item.num_keys; tile += kWarps) {
      wait_for_copies<Tile::kStages - 2>();
      __syncwarp();
      // Into the stage that the previous tile was read from.
      loader.load();
      state.add_tile(
          stages + stage * 2 * Tile::kBytes, item.begin + tile * Tile::kKeys, item, scale_log2);
      stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
    }
    write_exchange<Warp, kHeadDim, kQueryTiles>(state, item, args.heads_per_item, exchange);
    __syncthreads();
    join_warps<T, kHeadDim>(args, item, exchange);
    if (item.num_splits > 1 && is_last_split(args, item)) {
      join_splits<T, kHeadDim>(args, item, exchange);
    }
    __syncthreads();
  }
}

int num_multiprocessors() {
  int device = 0;
  int count = 0;
  if (ATOM_GPU(GetDevice)(&device) != ATOM_GPU(Success) ||
      ATOM_GPU(DeviceGetAttribute)(&count, cudaDevAttrMultiProcessorCount, device) !=
          ATOM_GPU(Success)) {
    return 1;
  }
  return count;
}

template <typename T, typename KV, int kHeadDim, int kQueryTiles>
gpuError_t launch_kernel(const DecodeArgs& args, gpuStream_t stream) {
  using Tile = DecodeTile<T, KV, kHeadDim, kQueryTiles>;
  const auto kernel = attention_decode_kernel<T, KV, kHeadDim, kQueryTiles>;
  const int shared_bytes =
      Tile::kSharedBytes +
      kWarps * args.heads_per_item * kHeadDim * static_cast<int>(sizeof(float)) +
      kWarps * kMaxHeadsPerItem * static_cast<int>(sizeof(float2));
  gpuError_t error =
      ATOM_GPU(FuncSetAttribute)(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != ATOM_GPU(Success)) {
    return error;
  }
  int blocks_per_multiprocessor = 0;
  error = ATOM_GPU(OccupancyMaxActiveBlocksPerMultiprocessor)(
      &blocks_per_multiprocessor, kernel, kThreads, shared_bytes);
  if (error != ATOM_GPU(Success)) {
    return error;
  }
  const int64_t max_items = int64_t{args.params.num_sequences} * args.params.num_kv_heads *
                            args.items_per_kv_head * args.max_splits;
  const int64_t max_blocks = int64_t{num_multiprocessors()} * blocks_per_multiprocessor;
  const int blocks = static_cast<int>(max_items < max_blocks ? max_items : max_blocks);
  if (blocks == 0) {
    return ATOM_GPU(Success);
  }
  kernel<<<blocks, kThreads, shared_bytes, stream>>>(args);
  return ATOM_GPU(GetLastError)();
}

template <typename T, typename KV, int kHeadDim>
gpuError_t launch_for_group(const DecodeArgs& args, gpuStream_t stream) {
  return args.heads_per_item <= 8 ? launch_kernel<T, KV, kHeadDim, 1>(args, stream)
                                  : launch_kernel<T, KV, kHeadDim, 2>(args, stream);
}

template <typename T, typename KV>
gpuError_t launch_for_head_dim(const DecodeArgs& args, gpuStream_t stream) {
  switch (args.params.head_dim) {
    case 64:
      return launch_for_group<T, KV, 64>(args, stream);
    case 128:
      return launch_for_group<T, KV, 128>(args, stream);
    case 256:
      return launch_for_group<T, KV, 256>(args, stream);
    default:
      return ATOM_GPU(ErrorInvalidValue);
  }
}

template <typename T>
gpuError_t launch_for_cache(const DecodeArgs& args, gpuStream_t stream) {
  return args.params.kv_element == AttentionElement::kFloat8E4m3
             ? launch_for_head_dim<T, Float8E4m3>(args, stream)
             : launch_for_head_dim<T, T>(args, stream);
}

// Longest part of a row that can be seen, from an aligned beginning.
int max_splits(const AttentionGpuParams& params) {
  int64_t keys = params.max_seq_len;
  if (params.sliding_window > 0 && params.sliding_window + kSplitAlignment - 1 < keys) {
    keys = params.sliding_window + kSplitAlignment - 1;
  }
  const int64_t splits = (keys + kMinSplitKeys - 1) / kMinSplitKeys;
  return splits < 1 ? 1 : splits > kMaxSplits ? kMaxSplits : static_cast<int>(splits);
}

int items_per_kv_head(const AttentionGpuParams& params) {
  const int group = params.num_heads / params.num_kv_heads;
  return (group + kMaxHeadsPerItem - 1) / kMaxHeadsPerItem;
}

int64_t num_partials(const AttentionGpuParams& params) {
  const int splits = max_splits(params);
  return splits == 1 ? 0 : int64_t{params.num_sequences} * params.num_heads * splits;
}

}  // namespace

size_t attention_decode_split_workspace_size(const AttentionGpuParams& params) {
  return num_partials(params) * (sizeof(float2) + params.head_dim * sizeof(float));
}

size_t attention_decode_split_num_counters(const AttentionGpuParams& params) {
  return size_t{1} * params.num_sequences * params.num_kv_heads * items_per_kv_head(params);
}

gpuError_t launch_attention_decode_split_cuda(const AttentionGpuParams& params,
                                              void* workspace,
                                              int32_t* counters,
                                              gpuStream_t stream) {
  DecodeArgs args;
  args.params = params;
  const int group = params.num_heads / params.num_kv_heads;
  args.heads_per_item = group < kMaxHeadsPerItem ? group : kMaxHeadsPerItem;
  args.items_per_kv_head = items_per_kv_head(params);
  args.max_splits = max_splits(params);
  args.partial_out = static_cast<float*>(workspace);
  args.partial_softmax =
      reinterpret_cast<float2*>(args.partial_out + num_partials(params) * params.head_dim);
  args.counters = counters;
  return params.element == AttentionElement::kBfloat16
             ? launch_for_cache<gpu_bfloat16>(args, stream)
             : launch_for_cache<__half>(args, stream);
}

}  // namespace atom::ops
