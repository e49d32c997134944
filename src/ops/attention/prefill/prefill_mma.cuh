// Inside attention by warp-level matrix instructions: a block has 64 rows of one KV head,
// consecutive queries times the query heads of that KV head, and passes over keys in tiles that
// begin at multiples of their size. A tile that a row does not see leaves it as it is, bit for bit.
#pragma once

#include "ops/attention/device/softmax.cuh"
#include "ops/attention/device/work.cuh"

namespace atom::ops::attention_device {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = kWarps * 16;

template <typename T, typename KV, int kHeadDim>
struct PrefillTile {
  static constexpr int kKeys = kHeadDim > 128 ? 32 : 64;
  static constexpr int kRowBytes = kHeadDim * sizeof(KV);
  static constexpr int kBytes = kKeys * kRowBytes;
  static constexpr int kQueryRowBytes = kHeadDim * 2;
  static constexpr int kQueryBytes = kRows * kQueryRowBytes;
  static constexpr int kStages = 2;
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kDimTiles = kHeadDim / 8;
  static constexpr int kSharedBytes = kQueryBytes + kStages * 2 * kBytes;
};

// The rows of a block. Row r is query (first_row + r) / group of the sequence, for query head
// kv_head * group + (first_row + r) % group.
struct RowBlock {
  int sequence;
  int kv_head;
  int group;
  int first_row;
  int first_token;  // of the sequence
  int num_queries;
  int seq_len;
  int first_key;  // that any row sees
  int end_key;

  __device__ int position(int row) const {
    return seq_len - num_queries + (first_row + row) / group;
  }
  __device__ bool is_valid(int row) const { return first_row + row < num_queries * group; }
};

// Queries go to shared memory once. For 8-bit keys, of which a thread gets elements 4c .. 4c + 3 of
// each 16 in the places of 2c, 2c + 1, 2c + 8 and 2c + 9, they are arranged likewise.
template <typename T, typename KV, int kHeadDim>
__device__ void load_queries(const AttentionArgs& params, const RowBlock& block, char* target) {
  using Tile = PrefillTile<T, KV, kHeadDim>;
  using C = Compute<T, KV>;
  constexpr int kChunks = kHeadDim / 8;
  for (int i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    uint4 bits = {0, 0, 0, 0};
    if (block.is_valid(row)) {
      const int packed = block.first_row + row;
      const int64_t token = block.first_token + packed / block.group;
      const int64_t head = block.kv_head * block.group + packed % block.group;
      bits = *reinterpret_cast<const uint4*>(static_cast<const T*>(params.q) +
                                             token * params.q_token_stride +
                                             head * params.q_head_stride + chunk * 8);
    }
    if constexpr (std::is_same_v<KV, Float8E4m3>) {
      const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int pair = (chunk & 1) * 4 + j;
        const int place = (pair & 1) * 4 + pair / 2;  // among the 8 pairs of 16 elements
        *reinterpret_cast<uint32_t*>(
            target + tile_offset<Tile::kQueryRowBytes>(row, (chunk & ~1) + place / 4) +
            place % 4 * 4) = convert_pair<C, T>(pairs[j]);
      }
    } else {
      *reinterpret_cast<uint4*>(target + tile_offset<Tile::kQueryRowBytes>(row, chunk)) = bits;
    }
  }
}

template <typename T, typename KV, int kHeadDim>
__device__ void load_keys_and_values(const AttentionArgs& params,
                                     const RowBlock& block,
                                     int tile_key,
                                     uint32_t target) {
  using Tile = PrefillTile<T, KV, kHeadDim>;
  constexpr int kChunks = Tile::kRowBytes / 16;
  const int32_t* table = params.block_tables + block.sequence * params.block_table_stride;
  for (int i = threadIdx.x; i < Tile::kKeys * kChunks; i += kThreads) {
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    const int key = tile_key + row;
    const bool visible = key >= block.first_key && key < block.end_key;
    int64_t offset = 0;
    if (visible) {
      const int page = key / params.block_size;
      const int64_t slot = int64_t{table[page]} * params.block_size + key % params.block_size;
      offset = (slot * params.num_kv_heads + block.kv_head) * Tile::kRowBytes + chunk * 16;
    }
    const uint32_t place = target + tile_offset<Tile::kRowBytes>(row, chunk);
    copy_async(place, static_cast<const char*>(params.k_cache) + offset, visible);
    copy_async(place + Tile::kBytes, static_cast<const char*>(params.v_cache) + offset, visible);
  }
}

// A warp's 16 rows. Thread (g, c) = (lane / 4, lane % 4) has rows g and g + 8.
template <typename T, typename KV, int kHeadDim>
struct WarpRows {
  using Tile = PrefillTile<T, KV, kHeadDim>;
  using C = Compute<T, KV>;
  static constexpr bool kIs8Bit = std::is_same_v<KV, Float8E4m3>;

  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  // of this thread's keys
  float out[Tile::kDimTiles][4] = {};
  int position[2];

  __device__ void add_tile(
      uint32_t queries, uint32_t keys, int tile_key, int sliding_window, float scale_log2) {
    float s[Tile::kKeyTiles][4] = {};
    scores(s, queries, keys);
    const int c = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < Tile::kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = tile_key + n * 8 + c * 2 + (i & 1);
        const int p = position[i / 2];
        const bool visible = key <= p && (sliding_window == 0 || key > p - sliding_window);
        s[n][i] = visible ? s[n][i] : -INFINITY;
      }
    }
    softmax(s, scale_log2);
    add_values(s, keys + Tile::kBytes);
  }

  // Replaces scores by their weights. Rounded step by step, as other kernels of a fixed order do
  // it.
  __device__ void softmax(float (&s)[Tile::kKeyTiles][4], float scale_log2) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < Tile::kKeyTiles; ++n) {
        top = fmaxf(top, fmaxf(s[n][j * 2], s[n][j * 2 + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      top = fmaxf(maximum[j], __fmul_rn(top, scale_log2));
      const float base = top == -INFINITY ? 0.f : top;
      const float correction = exp2_fast(__fsub_rn(maximum[j], base));
      maximum[j] = top;
      sum[j] = __fmul_rn(sum[j], correction);
#pragma unroll
      for (int n = 0; n < Tile::kKeyTiles; ++n) {
        s[n][j * 2] = weight_of(s[n][j * 2], scale_log2, base);
        s[n][j * 2 + 1] = weight_of(s[n][j * 2 + 1], scale_log2, base);
        sum[j] = __fadd_rn(sum[j], __fadd_rn(s[n][j * 2], s[n][j * 2 + 1]));
      }
#pragma unroll
      for (int n = 0; n < Tile::kDimTiles; ++n) {
        out[n][j * 2] *= correction;
        out[n][j * 2 + 1] *= correction;
      }
    }
  }

 private:
  // s[rows, keys] = queries keys^T
  __device__ void scores(float (&s)[Tile::kKeyTiles][4], uint32_t queries, uint32_t keys) {
    const int lane = threadIdx.x & 31;
    const int query_row = threadIdx.x / 32 * 16 + ((lane / 8) & 1) * 8 + (lane & 7);
    // 16-bit keys: matrices (keys 0-7, chunk 0), (0-7, 1), (8-15, 0), (8-15, 1) of 16 elements;
    // 8-bit ones: (keys 0-7, chunk 0), (8-15, 0), (0-7, 1), (8-15, 1) of 32.
    const int key_row = (kIs8Bit ? (lane / 8) & 1 : lane / 16) * 8 + (lane & 7);
    const int key_chunk = kIs8Bit ? lane / 16 : (lane / 8) & 1;
#pragma unroll
    for (int k = 0; k < Tile::kRowBytes / 32; ++k) {
      uint32_t q[kIs8Bit ? 2 : 1][4];
#pragma unroll
      for (int half = 0; half < (kIs8Bit ? 2 : 1); ++half) {
        const int chunk = (kIs8Bit ? k * 2 + half : k) * 2 + lane / 16;
        load_matrices(q[half], queries + tile_offset<Tile::kQueryRowBytes>(query_row, chunk));
      }
#pragma unroll
      for (int n = 0; n < Tile::kKeyTiles; n += 2) {
        uint32_t b[4];
        load_matrices(b, keys + tile_offset<Tile::kRowBytes>(n * 8 + key_row, k * 2 + key_chunk));
        if constexpr (kIs8Bit) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const uint32_t bytes = b[half * 2 + j];
              multiply_add<C>(
                  s[n + j], q[half], expand_pair(bytes & 0xffff), expand_pair(bytes >> 16));
            }
          }
        } else {
          multiply_add<C>(s[n], q[0], b[0], b[1]);
          multiply_add<C>(s[n + 1], q[0], b[2], b[3]);
        }
      }
    }
  }

  // out[rows, head_dim] += p values
  __device__ void add_values(const float (&p)[Tile::kKeyTiles][4], uint32_t values) {
    const int lane = threadIdx.x & 31;
    const int row = ((lane / 8) & 1) * 8 + (lane & 7);
    const int chunk = lane / 16;
#pragma unroll
    for (int m = 0; m < Tile::kKeys / 16; ++m) {
      const uint32_t a[4] = {pack<C>(p[m * 2][0], p[m * 2][1]),
                             pack<C>(p[m * 2][2], p[m * 2][3]),
                             pack<C>(p[m * 2 + 1][0], p[m * 2 + 1][1]),
                             pack<C>(p[m * 2 + 1][2], p[m * 2 + 1][3])};
#pragma unroll
      for (int k = 0; k < Tile::kRowBytes / 32; ++k) {
        uint32_t b[4];
        load_matrices_transposed(
            b, values + tile_offset<Tile::kRowBytes>(m * 16 + row, k * 2 + chunk));
        if constexpr (kIs8Bit) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            // Bytes 0 and 2 are even elements of head_dim, 1 and 3 odd ones, of two keys.
            const uint32_t low = __byte_perm(b[half * 2], 0, 0x3120);
            const uint32_t high = __byte_perm(b[half * 2 + 1], 0, 0x3120);
            const int n = (k * 2 + half) * 2;
            multiply_add<C>(out[n], a, expand_pair(low & 0xffff), expand_pair(high & 0xffff));
            multiply_add<C>(out[n + 1], a, expand_pair(low >> 16), expand_pair(high >> 16));
          }
        } else {
          multiply_add<C>(out[k * 2], a, b[0], b[1]);
          multiply_add<C>(out[k * 2 + 1], a, b[2], b[3]);
        }
      }
    }
  }
};

template <typename T, typename KV, int kHeadDim>
__device__ void store_rows(const AttentionArgs& params,
                           const RowBlock& block,
                           WarpRows<T, KV, kHeadDim>& rows) {
  using Rows = WarpRows<T, KV, kHeadDim>;
  const int lane = threadIdx.x & 31;
  const int c = lane & 3;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float sum = rows.sum[j];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const int row = threadIdx.x / 32 * 16 + lane / 4 + j * 8;
    if (!block.is_valid(row)) {
      continue;
    }
    const int packed = block.first_row + row;
    const int64_t token = block.first_token + packed / block.group;
    const int64_t head = block.kv_head * block.group + packed % block.group;
    const float factor = normalizer(params, head, rows.maximum[j], sum);
    T* out = static_cast<T*>(params.out) + token * params.out_token_stride +
             head * params.out_head_stride;
    if constexpr (Rows::kIs8Bit) {
      // Tiles 2i and 2i + 1 have the even and odd elements of 16.
#pragma unroll
      for (int n = 0; n < Rows::Tile::kDimTiles; n += 2) {
        const float(&even)[4] = rows.out[n];
        const float(&odd)[4] = rows.out[n + 1];
        *reinterpret_cast<uint2*>(out + n * 8 + c * 4) = {
            pack<T>(even[j * 2] * factor, odd[j * 2] * factor),
            pack<T>(even[j * 2 + 1] * factor, odd[j * 2 + 1] * factor)};
      }
    } else {
#pragma unroll
      for (int n = 0; n < Rows::Tile::kDimTiles; ++n) {
        *reinterpret_cast<uint32_t*>(out + n * 8 + c * 2) =
            pack<T>(rows.out[n][j * 2] * factor, rows.out[n][j * 2 + 1] * factor);
      }
    }
  }
}

}  // namespace atom::ops::attention_device
