// Inside decode attention: a warp's running softmax over its tiles.
#pragma once

#include "ops/attention/decode/tile.cuh"

namespace atom::ops::attention_device {

// The float16 values of four 8-bit floats.
__device__ inline void expand_four(uint32_t& low, uint32_t& high, uint32_t bits) {
  // A shift instead of this would cost an instruction: halves of a register are operands.
  uint16_t pairs[2];
  asm("mov.b32 {%0, %1}, %2;" : "=h"(pairs[0]), "=h"(pairs[1]) : "r"(bits));
  low = expand_pair(pairs[0]);
  high = expand_pair(pairs[1]);
}

__device__ inline uint2 load_shared_8(uint32_t address) {
  uint2 words;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "r"(address)
               : "memory");
  return words;
}

// Products are taken transposed, [keys, query heads] and [head_dim, query heads], which wastes
// least of the matrix instructions for groups of up to 8 heads: thread (g, c) = (lane / 4, lane %
// 4) has the columns 2c and 2c + 1 of each 8. Of 8-bit elements a thread gets four neighbors of a
// key: elements 4c to 4c + 3 of 16 are the operand's columns 2c, 2c + 1, 2c + 8 and 2c + 9, and of
// values elements 2g and 2g + 1 of 16 its rows g and g + 8.
template <typename T, typename KV, int kHeadDim, int kRows>
class WarpAttention {
 public:
  using Tile = DecodeTile<T, KV, kHeadDim, kRows>;

  __device__ WarpAttention() {
    const int lane = threadIdx.x & 31;
    key_row_ = tile_offset<Tile::kRowBytes>(lane & 15, lane >> 4);
    value_row_ = tile_offset<Tile::kRowBytes>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
    clear();
  }

  // After an item rather than before one: what its end computes may have the registers, of the
  // query too.
  __device__ void clear() {
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
#pragma unroll
      for (int r = 0; r < kHeadTiles; ++r) {
        q_[step][r][0] = q_[step][r][1] = 0;
      }
    }
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
    constexpr int kRowBytes = Tile::kQueryRowBytes;
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
      if constexpr (Tile::kIs8Bit) {
        const int row = r * 8 + lane / 4;
#pragma unroll
        for (int step = 0; step < kHeadDim / 16; ++step) {
          const int chunk = step * 2 + (lane & 2) / 2;
          const uint2 words =
              load_shared_8(query + tile_offset<kRowBytes>(row, chunk) + (lane & 1) * 8);
          q_[step][r][0] = convert_pair<C, T>(words.x);
          q_[step][r][1] = convert_pair<C, T>(words.y);
        }
      } else {
#pragma unroll
        for (int step = 0; step < kHeadDim / 16; step += 2) {
          uint32_t words[4];
          load_matrices(words,
                        query + tile_offset<kRowBytes>(r * 8 + lane % 8, step * 2 + lane / 8));
          q_[step][r][0] = words[0];
          q_[step][r][1] = words[1];
          q_[step + 1][r][0] = words[2];
          q_[step + 1][r][1] = words[3];
        }
      }
    }
  }

  // scores = keys q; `keys`: in the queue's entry.
  __device__ void take_keys(uint32_t keys) {
    // Sums of their own for every other step, where there is but one subtile: each waits for the
    // one before.
    multiply_keys<Tile::kSubtiles == 1 ? 2 : 1>(keys, scores_);
  }

  // For add_values(), so that the queue's entry is free early.
  __device__ void take_values(uint32_t values) {
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
#pragma unroll
      for (int pair = 0; pair < kChunkPairs; ++pair) {
        // A chunk and the next one of keys 0-7, then of keys 8-15.
        load_matrices_transposed(values_[m][pair], chunk_pair(values + value_row_, m, pair));
      }
    }
  }

  // Replaces the scores by their weights against the maximum.
  // The first of the tile's keys is `first_key`; visible are those in [begin, end).
  __device__ void soften(int first_key, int begin, int end, float scale_log2) {
    scale_visible(first_key, begin, end, scale_log2);
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

  // out += values^T weights, sum += weights as they are rounded.
  __device__ void add_values() {
    const uint32_t ones = pack<C>(1.f, 1.f);
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
      uint32_t weights[kHeadTiles][2];
      pack_weights(weights, scores_[m]);
#pragma unroll
      for (int r = 0; r < kHeadTiles; ++r) {
        multiply_add<C>(sum_[r], {ones, ones, ones, ones}, weights[r][0], weights[r][1]);
      }
      add_subtile(m, weights);
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

  // Writes this thread's part of a head's unnormalized result, [head_dim].
  __device__ void write_out(int r, int j, float* to) const {
    const int g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
      if constexpr (Tile::kIs8Bit) {
        *reinterpret_cast<float2*>(to + n * 16 + g * 2) = {out_[n][r][j], out_[n][r][j + 2]};
      } else {
        to[n * 16 + g] = out_[n][r][j];
        to[n * 16 + g + 8] = out_[n][r][j + 2];
      }
    }
  }

 protected:
  using C = Compute<T, KV>;
  static constexpr int kHeadTiles = kRows / 8;
  static constexpr int kOutTiles = kHeadDim / 16;
  static constexpr int kChunkPairs = Tile::kRowBytes / 32;

  // scores = keys q, each as so many sums.
  template <int kSums>
  __device__ void multiply_keys(uint32_t keys,
                                float (&scores)[Tile::kSubtiles][kHeadTiles][4]) const {
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
      float sums[kSums][kHeadTiles][4] = {};
#pragma unroll
      for (int pair = 0; pair < kChunkPairs; ++pair) {
        // Keys 0-7 and 8-15, then those of the next chunk.
        uint32_t a[4];
        load_matrices(a, chunk_pair(keys + key_row_, m, pair));
        if constexpr (Tile::kIs8Bit) {
          uint32_t first[4], second[4];
          expand_four(first[0], first[2], a[0]);
          expand_four(first[1], first[3], a[1]);
          expand_four(second[0], second[2], a[2]);
          expand_four(second[1], second[3], a[3]);
          add_scores(sums[0], pair * 2, first);
          add_scores(sums[kSums - 1], pair * 2 + 1, second);
        } else {
          add_scores(sums[pair % kSums], pair, a);
        }
      }
#pragma unroll
      for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores[m][r][i] = kSums == 1 ? sums[0][r][i] : sums[0][r][i] + sums[kSums - 1][r][i];
        }
      }
    }
  }

  // The weights of a subtile as an operand.
  __device__ static void pack_weights(uint32_t (&weights)[kHeadTiles][2],
                                      const float (&scores)[kHeadTiles][4]) {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
      weights[r][0] = transpose_matrix(pack<C>(scores[r][0], scores[r][1]));
      weights[r][1] = transpose_matrix(pack<C>(scores[r][2], scores[r][3]));
    }
  }

  // out += values^T weights, of subtile m of the values taken last.
  __device__ void add_subtile(int m, const uint32_t (&weights)[kHeadTiles][2]) {
#pragma unroll
    for (int pair = 0; pair < kChunkPairs; ++pair) {
      const uint32_t(&a)[4] = values_[m][pair];
      if constexpr (Tile::kIs8Bit) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t of_chunk[4];
          expand_four(of_chunk[0], of_chunk[1], __byte_perm(a[half], 0, 0x3120));
          expand_four(of_chunk[2], of_chunk[3], __byte_perm(a[half + 2], 0, 0x3120));
          add_out(pair * 2 + half, weights, of_chunk);
        }
      } else {
        add_out(pair, weights, a);
      }
    }
  }

  float maximum_[kHeadTiles][2];
  float out_[kOutTiles][kHeadTiles][4];

 private:
  // A score may be this much above the maximum that its weight is taken against: any maximum gives
  // the same result but for rounding, and a lasting one saves bringing the sums to a new one.
  static constexpr float kSlackLog2 = 8;

  // The address of this thread's row of chunks 2 * pair and 2 * pair + 1 of subtile m: the chunks'
  // permutation is by exclusive or.
  __device__ static uint32_t chunk_pair(uint32_t row, int m, int pair) {
    return (row ^ (pair * 32)) + m * Tile::kSubtileBytes;
  }

  __device__ void add_scores(float (&sums)[kHeadTiles][4], int step, const uint32_t (&a)[4]) const {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
      multiply_add<C>(sums[r], a, q_[step][r][0], q_[step][r][1]);
    }
  }

  __device__ void scale_visible(int first_key, int begin, int end, float scale_log2) {
    const bool all_visible = first_key >= begin && first_key + Tile::kKeys <= end;
    const int g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + m * kSubtileKeys + i / 2 * 8 + g;
        const bool visible = all_visible || (key >= begin && key < end);
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

  __device__ void add_out(int n, const uint32_t (&weights)[kHeadTiles][2], const uint32_t (&a)[4]) {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
      multiply_add<C>(out_[n][r], a, weights[r][0], weights[r][1]);
    }
  }

  uint32_t key_row_;  // this thread's place in a subtile, as an operand
  uint32_t value_row_;
  uint32_t values_[Tile::kSubtiles][kChunkPairs][4];
  uint32_t q_[kHeadDim / 16][kHeadTiles][2];
  float sum_[kHeadTiles][4];  // a product like out, of which all rows are the same
  float scores_[Tile::kSubtiles][kHeadTiles][4];
};

}  // namespace atom::ops::attention_device
