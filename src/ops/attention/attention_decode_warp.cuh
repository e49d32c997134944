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

// Products are taken transposed, [keys, query heads] and [head_dim, query heads], which wastes
// least of the matrix instructions for groups of up to 8 heads: thread (g, c) = (lane / 4, lane %
// 4) has the columns 2c and 2c + 1 of each 8. The rows of the second product, 16 at a time, are
// elements e and e + 1 of the threads' chunks of values. See attention_decode_tile.cuh for the
// operands.
template <typename T, typename KV, int kHeadDim, int kRows>
class WarpAttention {
 public:
  using Tile = DecodeTile<T, KV, kHeadDim, kRows>;

  __device__ WarpAttention() {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        maximum_[r][j] = -INFINITY;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum_[r][i] = 0;
      }
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          out_[n][r][i] = 0;
        }
      }
    }
  }

  // `query`: in the entry of an item's first tile.
  __device__ void take_query(uint32_t query) {
    constexpr int kVectors = Tile::kIs8Bit ? 2 : 1;
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int chunk = 0; chunk < Tile::kKeyChunks; ++chunk) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          // The elements that meet this thread's chunk of a key.
          const int first = (lane % 4 + chunk * 4) * kVectors + v;
          uint32_t words[4];
          load_shared<16>(words, query + Tile::query_place(r * 8 + lane / 4, first));
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const int step = (chunk * kVectors + v) * 2 + w / 2;
            q_[step][r][w % 2] = convert_pair<C, T>(words[w]);
          }
        }
      }
    }
  }

  // scores = keys q; `keys`: the queue's entry.
  __device__ void take_keys(uint32_t keys) {
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
#pragma unroll
      for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores_[m][r][i] = 0;
        }
      }
#pragma unroll
      for (int chunk = 0; chunk < Tile::kKeyChunks; ++chunk) {
        uint32_t key0[4], key8[4];
        load_shared<16>(key0, keys + Tile::key_offset(m, 0, chunk));
        load_shared<16>(key8, keys + Tile::key_offset(m, 1, chunk));
        if constexpr (Tile::kIs8Bit) {
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            uint32_t low[2], high[2];
            expand_four(low, key0[w]);
            expand_four(high, key8[w]);
            add_scores(m, chunk * 4 + w, {low[0], high[0], low[1], high[1]});
          }
        } else {
          add_scores(m, chunk * 2, {key0[0], key8[0], key0[1], key8[1]});
          add_scores(m, chunk * 2 + 1, {key0[2], key8[2], key0[3], key8[3]});
        }
      }
    }
  }

  // Replaces the scores by their weights against the maximum.
  __device__ void soften(int tile, const Item& item, float scale_log2) {
    scale_visible(tile * Tile::kKeys, item, scale_log2);
    if (exceeds_maximum()) {
      raise_maximum();
    }
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float base = maximum_[r][j] == -INFINITY ? 0.f : maximum_[r][j];
#pragma unroll
        for (int m = 0; m < Tile::kSubtiles; ++m) {
#pragma unroll
          for (int i = j; i < 4; i += 2) {
            scores_[m][r][i] = exp2_fast(scores_[m][r][i] - base);
          }
        }
      }
    }
  }

  // out += values^T weights, sum += weights as they are rounded; `values`: the queue's entry.
  __device__ void take_values(uint32_t values) {
    constexpr int kChunkBytes = Tile::kValueChunkBytes;
    constexpr int kWords = kChunkBytes / 4;
    values += (threadIdx.x & 31) * kChunkBytes;
    const uint32_t ones = pack<C>(1.f, 1.f);
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
      uint32_t weights[kHeadTiles][2];
#pragma unroll
      for (int r = 0; r < kHeadTiles; ++r) {
        weights[r][0] = transpose_matrix(pack<C>(scores_[m][r][0], scores_[m][r][1]));
        weights[r][1] = transpose_matrix(pack<C>(scores_[m][r][2], scores_[m][r][3]));
        multiply_add<C>(sum_[r], {ones, ones, ones, ones}, weights[r][0], weights[r][1]);
      }
#pragma unroll
      for (int chunk = 0; chunk < Tile::kValueChunks; ++chunk) {
        uint32_t words[4][kWords];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int place = (m * 4 + k) * Tile::kValueChunks + chunk;
          load_shared<kChunkBytes>(words[k], values + place * 32 * kChunkBytes);
        }
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          const int first = (chunk * kWords + w) * (Tile::kIs8Bit ? 2 : 1);
          add_values(first, weights, words[0][w], words[1][w], words[2][w], words[3][w]);
        }
      }
    }
  }

  // For every head of this thread: f(head, maximum, sum of all the warp's keys, place of the head's
  // results in the thread).
  template <typename F>
  __device__ void for_each_head(const F& f) const {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        f(r * 8 + static_cast<int>(threadIdx.x & 3) * 2 + j, maximum_[r][j], sum_[r][j], r, j);
      }
    }
  }

  // Writes this thread's part of a head's unnormalised result, [head_dim].
  __device__ void write_out(int r, int j, float* to) const {
    const int g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int chunk = 0; chunk < Tile::kValueChunks; ++chunk) {
      float* run = to + (g + chunk * 8) * kChunkElements;
#pragma unroll
      for (int e = 0; e < kChunkElements; e += 4) {
        const int n = (chunk * kChunkElements + e) / 2;
        *reinterpret_cast<float4*>(run + e) = {
            out_[n][r][j], out_[n][r][j + 2], out_[n + 1][r][j], out_[n + 1][r][j + 2]};
      }
    }
  }

 private:
  using C = Compute<T, KV>;
  static constexpr int kHeadTiles = kRows / 8;
  static constexpr int kOutTiles = kHeadDim / 16;
  static constexpr int kChunkElements = Tile::kValueChunkBytes / static_cast<int>(sizeof(KV));
  // A score may be this much above the maximum that its weight is taken against: any maximum gives
  // the same result but for rounding, and a lasting one saves bringing the sums to a new one.
  static constexpr float kSlackLog2 = 8;

  __device__ void add_scores(int m, int step, const uint32_t (&a)[4]) {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
      multiply_add<C>(scores_[m][r], a, q_[step][r][0], q_[step][r][1]);
    }
  }

  __device__ void scale_visible(int first_key, const Item& item, float scale_log2) {
    const bool all_visible = first_key >= item.first_key && first_key + Tile::kKeys <= item.seq_len;
    const int g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + m * kSubtileKeys + i / 2 * 8 + g;
        const bool visible = all_visible || (key >= item.first_key && key < item.seq_len);
#pragma unroll
        for (int r = 0; r < kHeadTiles; ++r) {
          scores_[m][r][i] = visible ? scores_[m][r][i] * scale_log2 : -INFINITY;
        }
      }
    }
  }

  // The same in all lanes.
  __device__ bool exceeds_maximum() const {
    bool exceeds = false;
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int m = 0; m < Tile::kSubtiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          exceeds |= scores_[m][r][i] > maximum_[r][i % 2] + kSlackLog2;
        }
      }
    }
    return __any_sync(kAllLanes, exceeds);
  }

  __device__ void raise_maximum() {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float top = maximum_[r][j];
#pragma unroll
        for (int m = 0; m < Tile::kSubtiles; ++m) {
          top = fmaxf(top, fmaxf(scores_[m][r][j], scores_[m][r][j + 2]));
        }
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, offset));
        }
        const float correction = exp2_fast(maximum_[r][j] - (top == -INFINITY ? 0.f : top));
        maximum_[r][j] = top;
        sum_[r][j] *= correction;
        sum_[r][j + 2] *= correction;
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
          out_[n][r][j] *= correction;
          out_[n][r][j + 2] *= correction;
        }
      }
    }
  }

  // Words of the same elements of four keys; the elements are rows of the products from `first` on.
  __device__ void add_values(int first,
                             const uint32_t (&weights)[kHeadTiles][2],
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
        add_out(first + half, weights, {low[0], low[1], high[0], high[1]});
      }
    } else {
      add_out(first,
              weights,
              {__byte_perm(key0, key1, 0x5410),
               __byte_perm(key0, key1, 0x7632),
               __byte_perm(key8, key9, 0x5410),
               __byte_perm(key8, key9, 0x7632)});
    }
  }

  __device__ void add_out(int n, const uint32_t (&weights)[kHeadTiles][2], const uint32_t (&a)[4]) {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
      multiply_add<C>(out_[n][r], a, weights[r][0], weights[r][1]);
    }
  }

  uint32_t q_[kHeadDim / 16][kHeadTiles][2];
  float maximum_[kHeadTiles][2];
  float sum_[kHeadTiles][4];  // a product like out, of which all rows are the same
  float scores_[Tile::kSubtiles][kHeadTiles][4];
  float out_[kOutTiles][kHeadTiles][4];
};

}  // namespace atom::ops::attention_device
