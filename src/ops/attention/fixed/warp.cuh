// Inside decode attention of a fixed order: what a warp has added up of an item, by the steps of
// prefill/prefill_mma.cuh's WarpRows, bit for bit. Each score and each output is a sum over
// ascending groups of 16 in either kernel, in which the matrix units do not mind the places.
#pragma once

#include "ops/attention/decode/warp.cuh"
#include "ops/attention/fixed/queue.cuh"

namespace atom::ops::attention_device {

template <typename T, typename KV, int kHeadDim>
class FixedWarp : public WarpAttention<T, KV, kHeadDim, kFixedHeads> {
 public:
  using Queue = FixedQueue<T, KV, kHeadDim>;
  using Base = WarpAttention<T, KV, kHeadDim, kFixedHeads>;
  using Part = typename Queue::Part;

  __device__ FixedWarp() { clear_segment(); }

  // The scores of part `index` of the tile's keys, which are in the queue's entry.
  __device__ void take_part(int index, uint32_t keys) {
    float scores[Part::kSubtiles][kHeadTiles][4];
    this->template multiply_keys<1>(keys, scores);
#pragma unroll
    for (int part = 0; part < Queue::kParts; ++part) {
      if (part != index) continue;
#pragma unroll
      for (int m = 0; m < Part::kSubtiles; ++m) {
#pragma unroll
        for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
          for (int i = 0; i < 4; ++i) scores_[part * Part::kSubtiles + m][r][i] = scores[m][r][i];
        }
      }
    }
  }

  // Replaces all of the tile's scores by their weights against the largest score of the segment so
  // far. The first of the tile's keys is `first_key`; visible are those in [begin, end).
  __device__ void weigh(int first_key, int begin, int end, float scale_log2) {
    hide_invisible(first_key, begin, end);
    raise_maximum(scale_log2);
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
      float base[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        base[j] = this->maximum_[r][j] == -INFINITY ? 0.f : this->maximum_[r][j];
      }
#pragma unroll
      for (int m = 0; m < kSubtiles; ++m) {
        float(&scores)[4] = scores_[m][r];
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[i] = weight_of(scores[i], scale_log2, base[i % 2]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          // Two adjacent keys, which a thread of the other kernel has.
          const float pair = __fadd_rn(scores[i], __shfl_xor_sync(kAllLanes, scores[i], 4));
          sum_[r][i % 2] = __fadd_rn(sum_[r][i % 2], pair);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kSubtiles; ++m) this->pack_weights(weights_[m], scores_[m]);
  }

  // Adds part `index` of the tile's values, which are in the queue's entry.
  __device__ void add_part(int index, uint32_t values) {
    this->take_values(values);
#pragma unroll
    for (int m = 0; m < Part::kSubtiles; ++m) {
      uint32_t weights[kHeadTiles][2];
#pragma unroll
      for (int part = 0; part < Queue::kParts; ++part) {
#pragma unroll
        for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const uint32_t own = weights_[part * Part::kSubtiles + m][r][i];
            weights[r][i] = part == 0 || part == index ? own : weights[r][i];
          }
        }
      }
      this->add_subtile(m, weights);
    }
  }

  // At a segment's end: its sums are those of the segment's whole softmax.
  __device__ void finish_segment() {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        sum_[r][j] = __fadd_rn(sum_[r][j], __shfl_xor_sync(kAllLanes, sum_[r][j], 8));
        sum_[r][j] = __fadd_rn(sum_[r][j], __shfl_xor_sync(kAllLanes, sum_[r][j], 16));
      }
    }
  }

  __device__ void join_segment() {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (this->maximum_[r][j] == -INFINITY) continue;  // the row sees nothing of it
        const auto factors = joined_[r][j].add(this->maximum_[r][j], sum_[r][j]);
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
          for (int i = j; i < 4; i += 2) {
            joined_out_[n][r][i] = factors.join(joined_out_[n][r][i], this->out_[n][r][i]);
          }
        }
      }
    }
  }

  __device__ void clear_segment() {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        this->maximum_[r][j] = -INFINITY;
        sum_[r][j] = 0;
      }
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) this->out_[n][r][i] = 0;
      }
    }
  }

  __device__ void clear_joined() {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) joined_[r][j] = {};
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) joined_out_[n][r][i] = 0;
      }
    }
  }

  // Writes the segment's results, or what is joined, for heads below num_heads.
  template <bool kJoined>
  __device__ void write(float2* softmax, float* out, int num_heads) const {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int head = r * 8 + (lane & 3) * 2 + j;
        if (head >= num_heads) continue;
        if (lane < 4) {
          const float2 both = kJoined ? make_float2(joined_[r][j].maximum, joined_[r][j].sum)
                                      : make_float2(this->maximum_[r][j], sum_[r][j]);
          __stcg(softmax + head, both);
        }
        for_each_element(j, [&](int d, int n, int i) {
          __stcg(out + head * kHeadDim + d, kJoined ? joined_out_[n][r][i] : this->out_[n][r][i]);
        });
      }
    }
  }

  // Writes the rows' results from what is joined.
  __device__ void store(const AttentionArgs& params, const FixedItem& item) const {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int head = r * 8 + (lane & 3) * 2 + j;
        if (head >= item.num_heads) continue;
        const int64_t q_head = item.first_head + head;
        const float factor = normalizer(params, q_head, joined_[r][j].maximum, joined_[r][j].sum);
        T* out = static_cast<T*>(params.out) + item.keys.token * params.out_token_stride +
                 q_head * params.out_head_stride;
        for_each_element(j, [&](int d, int n, int i) {
          const uint32_t bits = pack<T>(joined_out_[n][r][i] * factor, 0.f);
          *reinterpret_cast<uint16_t*>(out + d) = static_cast<uint16_t>(bits);
        });
      }
    }
  }

 private:
  using Base::kHeadTiles;
  using Base::kOutTiles;
  static constexpr int kSubtiles = kFixedTileKeys / kSubtileKeys;

  // f(element of head_dim, its place in the thread)
  template <typename F>
  __device__ static void for_each_element(int j, const F& f) {
    const int g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int d = Part::kIs8Bit ? g * 2 + half : g + half * 8;
        f(n * 16 + d, n, j + half * 2);
      }
    }
  }

  __device__ void hide_invisible(int first_key, int begin, int end) {
    if (first_key >= begin && first_key + kFixedTileKeys <= end) return;
    const int g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int m = 0; m < kSubtiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + m * kSubtileKeys + i / 2 * 8 + g;
        if (key >= begin && key < end) continue;
#pragma unroll
        for (int r = 0; r < kHeadTiles; ++r) scores_[m][r][i] = -INFINITY;
      }
    }
  }

  __device__ void raise_maximum(float scale_log2) {
#pragma unroll
    for (int r = 0; r < kHeadTiles; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float before = this->maximum_[r][j];
        float top = -INFINITY;
#pragma unroll
        for (int m = 0; m < kSubtiles; ++m) {
          top = fmaxf(top, fmaxf(scores_[m][r][j], scores_[m][r][j + 2]));
        }
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, offset));
        }
        top = fmaxf(before, __fmul_rn(top, scale_log2));
        this->maximum_[r][j] = top;
        // Nothing is summed up yet, or the factor would be 1.
        if (before == -INFINITY || before == top) continue;
        const float correction = exp2_fast(__fsub_rn(before, top));
        sum_[r][j] = __fmul_rn(sum_[r][j], correction);
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
          this->out_[n][r][j] *= correction;
          this->out_[n][r][j + 2] *= correction;
        }
      }
    }
  }

  float scores_[kSubtiles][kHeadTiles][4];
  uint32_t weights_[kSubtiles][kHeadTiles][2];
  float sum_[kHeadTiles][2];  // of this thread's pairs of keys
  JoinedSoftmax joined_[kHeadTiles][2];
  float joined_out_[kOutTiles][kHeadTiles][4] = {};
};

}  // namespace atom::ops::attention_device
