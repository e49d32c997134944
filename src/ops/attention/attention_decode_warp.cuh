// Inside decode attention: a warp's running softmax over its tiles.
#pragma once

#include "ops/attention/attention_decode_tile.cuh"

namespace atom::ops::attention_device {

// The float16 values of four 8-bit floats.
__device__ inline void expand_four(uint32_t (&halves)[2], uint32_t bits) {
  halves[0] = expand_pair(bits & 0xffff);
  halves[1] = expand_pair(bits >> 16);
}

template <int kBytes>
__device__ inline void load_shared(uint32_t (&words)[kBytes / 4], uint32_t address) {
  static_assert(kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address)
                 : "memory");
  }
}

// Products are [query heads, keys] and [query heads, head_dim]: thread (g, c) = (lane / 4, lane %
// 4) has rows g and, with 16 of them, g + 8, of columns 2c and 2c + 1 of each 8. The scores' layout
// is that of the weights in the second product. See attention_decode_tile.cuh for the operands.
template <typename T, typename KV, int kHeadDim, int kRows>
class WarpAttention {
 public:
  using Tile = DecodeTile<T, KV, kHeadDim, kRows>;
  static constexpr int kRowsPerThread = kRows / 8;
  // Elements of a thread's chunk of values, which become a column each.
  static constexpr int kChunkElements = Tile::kValueChunkBytes / static_cast<int>(sizeof(KV));

  __device__ void start(const AttentionGpuParams& params, const Item& item) {
    const int lane = threadIdx.x & 31;
    const int token = params.query_start[item.row];
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
      const int head = r * 8 + lane / 4;
      const bool valid = head < item.num_heads;
      const T* row = static_cast<const T*>(params.q) + token * params.q_token_stride +
                     (item.first_head + (valid ? head : 0)) * params.q_head_stride;
#pragma unroll
      for (int chunk = 0; chunk < Tile::kKeyChunks; ++chunk) {
        load_query_chunk(row, chunk, r, valid);
      }
      maximum_[r] = -INFINITY;
      sum_[r] = 0;
    }
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out_[n][i] = 0;
      }
    }
  }

  // scores[keys of a thread] = q keys; `keys`: this thread's queue.
  __device__ void take_keys(uint32_t keys) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores_[n][i] = 0;
      }
    }
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int chunk = 0; chunk < Tile::kKeyChunks; ++chunk) {
        uint32_t words[4];
        load_shared<16>(words, keys + (n * Tile::kKeyChunks + chunk) * 512);
        if constexpr (Tile::kIs8Bit) {
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            uint32_t b[2];
            expand_four(b, words[w]);
            add_scores(n, chunk * 4 + w, b);
          }
        } else {
          const uint32_t low[2] = {words[0], words[1]};
          const uint32_t high[2] = {words[2], words[3]};
          add_scores(n, chunk * 2, low);
          add_scores(n, chunk * 2 + 1, high);
        }
      }
    }
  }

  // Replaces the scores by their weights against the new maximum; brings sum and out to it.
  __device__ void soften(int tile, const Item& item, float scale_log2) {
    const int first_key = tile * Tile::kKeys;
    const bool all_visible = first_key >= item.first_key && first_key + Tile::kKeys <= item.seq_len;
    const int c = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = first_key + n * 8 + c * 2 + j;
        const bool visible = all_visible || (key >= item.first_key && key < item.seq_len);
#pragma unroll
        for (int r = 0; r < kRowsPerThread; ++r) {
          float& score = scores_[n][r * 2 + j];
          score = visible ? score * scale_log2 : -INFINITY;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
      soften_row(r);
    }
  }

  // out += weights values; `values`: this thread's queue.
  __device__ void take_values(uint32_t values) {
    constexpr int kWords = Tile::kValueChunkBytes / 4;
#pragma unroll
    for (int i = 0; i < Tile::kSubtiles; ++i) {
      const uint32_t weights[4] = {weights_of(i * 2, 0),
                                   kRowsPerThread == 2 ? weights_of(i * 2, 1) : 0,
                                   weights_of(i * 2 + 1, 0),
                                   kRowsPerThread == 2 ? weights_of(i * 2 + 1, 1) : 0};
#pragma unroll
      for (int chunk = 0; chunk < Tile::kValueChunks; ++chunk) {
        uint32_t words[4][kWords];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int place = (i * 4 + k) * Tile::kValueChunks + chunk;
          load_shared<Tile::kValueChunkBytes>(words[k],
                                              values + place * 32 * Tile::kValueChunkBytes);
        }
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          const int column = chunk * kChunkElements + w * (4 / static_cast<int>(sizeof(KV)));
          add_values(column, weights, words[0][w], words[1][w], words[2][w], words[3][w]);
        }
      }
    }
  }

  // For every head of this thread: f(head, maximum, sum of all the warp's keys).
  template <typename F>
  __device__ void for_each_head(const F& f) const {
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
      float sum = sum_[r];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      f(r * 8 + static_cast<int>(threadIdx.x & 31) / 4, maximum_[r], sum);
    }
  }

  // Writes this thread's part of a head's unnormalised result, [head_dim].
  __device__ void write_out(int head, float* to) const {
    const int c = threadIdx.x & 3;
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
      if (kRowsPerThread == 2 && head / 8 != r) {
        continue;
      }
#pragma unroll
      for (int chunk = 0; chunk < Tile::kValueChunks; ++chunk) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float* run = to + (c * 2 + j + chunk * 8) * kChunkElements;
#pragma unroll
          for (int e = 0; e < kChunkElements; e += 4) {
            const int n = chunk * kChunkElements + e;
            *reinterpret_cast<float4*>(run + e) = {out_[n][r * 2 + j],
                                                   out_[n + 1][r * 2 + j],
                                                   out_[n + 2][r * 2 + j],
                                                   out_[n + 3][r * 2 + j]};
          }
        }
      }
    }
  }

 private:
  using C = Compute<T, KV>;
  static constexpr int kKeyTiles = Tile::kKeys / 8;
  static constexpr int kOutTiles = kHeadDim / 8;

  // The elements of q that meet a thread's chunk of a key.
  __device__ void load_query_chunk(const T* row, int chunk, int r, bool valid) {
    constexpr int kVectors = Tile::kIs8Bit ? 2 : 1;
    const int first = ((threadIdx.x & 3) + chunk * 4) * kVectors;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      uint4 words = {0, 0, 0, 0};
      if (valid) {
        words = reinterpret_cast<const uint4*>(row)[first + v];
      }
      const int step = (chunk * kVectors + v) * 2;
      q_[step][0][r] = convert_pair<C, T>(words.x);
      q_[step][1][r] = convert_pair<C, T>(words.y);
      q_[step + 1][0][r] = convert_pair<C, T>(words.z);
      q_[step + 1][1][r] = convert_pair<C, T>(words.w);
    }
  }

  __device__ void add_scores(int n, int step, const uint32_t (&b)[2]) {
    const uint32_t a[4] = {q_[step][0][0],
                           kRowsPerThread == 2 ? q_[step][0][kRowsPerThread - 1] : 0,
                           q_[step][1][0],
                           kRowsPerThread == 2 ? q_[step][1][kRowsPerThread - 1] : 0};
    multiply_add<C>(scores_[n], a, b[0], b[1]);
  }

  __device__ void soften_row(int r) {
    float top = maximum_[r];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      top = fmaxf(top, fmaxf(scores_[n][r * 2], scores_[n][r * 2 + 1]));
    }
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    const float base = top == -INFINITY ? 0.f : top;
    if (__any_sync(kAllLanes, top > maximum_[r])) {
      const float correction = exp2_fast(maximum_[r] - base);
      maximum_[r] = top;
      sum_[r] *= correction;
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        out_[n][r * 2] *= correction;
        out_[n][r * 2 + 1] *= correction;
      }
    }
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores_[n][r * 2 + j];
        score = exp2_fast(score - base);
        sum_[r] += score;
      }
    }
  }

  __device__ uint32_t weights_of(int n, int r) const {
    return pack<C>(scores_[n][r * 2], scores_[n][r * 2 + 1]);
  }

  // Words of the same elements of four keys; the elements are columns `column`, ...
  __device__ void add_values(int column,
                             const uint32_t (&weights)[4],
                             uint32_t key0,
                             uint32_t key1,
                             uint32_t key8,
                             uint32_t key9) {
    if constexpr (Tile::kIs8Bit) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t low[2], high[2];
        expand_four(low, __byte_perm(key0, key1, half == 0 ? 0x5140 : 0x7362));
        expand_four(high, __byte_perm(key8, key9, half == 0 ? 0x5140 : 0x7362));
        multiply_add<C>(out_[column + half * 2], weights, low[0], high[0]);
        multiply_add<C>(out_[column + half * 2 + 1], weights, low[1], high[1]);
      }
    } else {
      multiply_add<C>(
          out_[column], weights, __byte_perm(key0, key1, 0x5410), __byte_perm(key8, key9, 0x5410));
      multiply_add<C>(out_[column + 1],
                      weights,
                      __byte_perm(key0, key1, 0x7632),
                      __byte_perm(key8, key9, 0x7632));
    }
  }

  uint32_t q_[kHeadDim / 16][2][kRowsPerThread];
  float maximum_[kRowsPerThread];
  float sum_[kRowsPerThread];  // of this thread's keys
  float scores_[kKeyTiles][4];
  float out_[kOutTiles][4];  // column [chunk][element]: element of chunk g + 8 chunk
};

}  // namespace atom::ops::attention_device
