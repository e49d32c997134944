// Inside the Hopper prefill attention: the warpgroups that compute.
#pragma once

#include "ops/attention/prefill/prefill_sm90.cuh"

namespace atom::ops::attention_device {

// A warpgroup. Thread (w, g, c) = (warp, lane / 4, lane % 4) has rows 16w + g and 16w + g + 8, and
// columns 2c and 2c + 1 of each 8.
template <typename T, typename KV, int kHeadDim>
class Consumer {
 public:
  using Tile = PrefillTile<KV, kHeadDim>;

  __device__ __forceinline__ Consumer(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers)
      : args_(args),
        buffers_(buffers),
        group_(__shfl_sync(kAllLanes, threadIdx.x / kGroupThreads - 1, 0)),
        scale_log2_(args.params.scale * args.params.k_scale * kLog2E) {}

  // An item's first scores are computed while the result of the one before is stored.
  __device__ __forceinline__ void run() {
    ItemReader<KV, kHeadDim> items(buffers_);
    Item item;
    Rows rows;
    if (group_ == Tile::kGroups - 1) {
      named_barrier_arrive<2 * kGroupThreads>(kTurnBarrier);  // group 0 is the first
    }
    bool has_item = items.next(item);
    if (has_item) {
      wait_for_first();
      begin_products();
      multiply_keys(rows.scores);
      commit_products();
      wait_for_products<0>();
      weigh_first(rows, item);
    }
    while (has_item) {
      for (int tile = item.last_tile - 1; tile >= item.first_tile; --tile) {
        add_tile(rows, item, tile);
      }
      wait_for(buffers_.values_full(values_.stage), values_.parity);
      clear_unwritten(item, item.first_tile);
      begin_products();
      multiply_values(rows);
      commit_products();
      const Item done = item;
      has_item = items.next(item);
      if (has_item) {
        wait_for_first();
        begin_products();
        multiply_keys(rows.scores);
        commit_products();
        wait_for_products<1>();
        finish(rows, done);
        wait_for_products<0>();
        weigh_first(rows, item);
      } else {
        wait_for_products<0>();
        finish(rows, done);
      }
    }
  }

 private:
  // What a thread has of its two rows.
  struct Rows {
    float scores[Tile::kKeys / 2];
    float out[Tile::kValueDim / 2];
    uint32_t weights[Tile::kKeys / 4];
    float base[2];
    float sum[2];
    bool has_out;
  };

  __device__ __forceinline__ void wait_for_first() {
    wait_for(buffers_.queries_full(group_), query_parity_);
    query_parity_ ^= 1;
    wait_for(buffers_.keys_full(keys_.stage), keys_.parity);
  }

  // Weighs an item's first scores.
  __device__ __forceinline__ void weigh_first(Rows& rows, const Item& item) {
    float correction[2];
    rows.base[0] = rows.base[1] = -INFINITY;
    rows.sum[0] = rows.sum[1] = 0;
    rows.has_out = false;
    pin(rows.scores);
    release_keys(item, item.last_tile);
    mask(rows.scores, item, item.last_tile);
    softmax(rows, correction);
    pack_weights(rows);
  }

  // The scores of a tile, and the values of the one before it.
  __device__ __forceinline__ void add_tile(Rows& rows, const Item& item, int tile) {
    float correction[2];
    wait_for(buffers_.keys_full(keys_.stage), keys_.parity);
    wait_for(buffers_.values_full(values_.stage), values_.parity);
    clear_unwritten(item, tile + 1);
    named_barrier_wait<2 * kGroupThreads>(kTurnBarrier + group_);
    begin_products();
    multiply_keys(rows.scores);
    commit_products();
    multiply_values(rows);
    commit_products();
    named_barrier_arrive<2 * kGroupThreads>(kTurnBarrier +
                                            (group_ + 1 == Tile::kGroups ? 0 : group_ + 1));
    wait_for_products<1>();
    pin(rows.scores);
    release_keys(item, tile);
    mask(rows.scores, item, tile);
    softmax(rows, correction);
    pin(rows.scores);
    // Not one wait after the branch: the assembler would move it in front of the exponentials,
    // which do not need it, and they would not overlap the products.
    if (__any_sync(kAllLanes, correction[0] != 1.f || correction[1] != 1.f)) {
      wait_for_products<0>();
      pin(rows.out);
      rescale(rows.out, correction);
    } else {
      wait_for_products<0>();
      pin(rows.out);
    }
    release(buffers_.values_empty(values_.stage));
    values_.advance();
    pack_weights(rows);
    rows.has_out = true;
  }

  __device__ __forceinline__ void finish(Rows& rows, const Item& item) {
    pin(rows.out);
    release(buffers_.values_empty(values_.stage));
    values_.advance();
    store(rows, item);
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if ((threadIdx.x & 31) == 0) {
      arrive(barrier);
    }
  }

  // Gives back a tile's room, and with the item's last one that of its queries.
  __device__ __forceinline__ void release_keys(const Item& item, int tile) {
    release(buffers_.keys_empty(keys_.stage));
    keys_.advance();
    if (tile == item.first_tile) {
      release(buffers_.queries_empty(group_));
    }
  }

  __device__ __forceinline__ void multiply_keys(float (&scores)[Tile::kKeys / 2]) const {
    const uint32_t queries = shared_matrix(buffers_.queries(group_), 0);
    const uint32_t keys = shared_matrix(buffers_.keys(keys_.stage), 0);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const int panel = k / 4;
      const int byte = k % 4 * 32;
      product_of_shared<T, Tile::kKeys, kPieceBytes, Tile::kRowsBytes>(
          scores,
          queries + bytes_of_matrix(panel * Tile::kQueryPanelBytes + byte),
          keys + bytes_of_matrix(panel * kPieceBytes + byte),
          k > 0);
    }
  }

  __device__ __forceinline__ void multiply_values(Rows& rows) const {
    const uint32_t values = shared_matrix(buffers_.values(values_.stage), kPieceBytes);
#pragma unroll
    for (int k = 0; k < Tile::kKeys / 16; ++k) {
      product_of_registers<T, Tile::kValueDim, Tile::kValueRowsBytes>(
          rows.out,
          rows.weights + k * 4,
          values + bytes_of_matrix(k * 2 * Tile::kValueRowsBytes),
          rows.has_out || k > 0);
    }
  }

  // Zeroes the tile's values that no query sees, which no token may have written or which were not
  // loaded: a weight of zero would not hide a NaN there.
  __device__ __forceinline__ void clear_unwritten(const Item& item, int tile) const {
    const int first = tile * Tile::kKeys;
    if (first >= item.first_key && first + Tile::kKeys <= item.seq_len) {
      return;
    }
    const uint32_t values = buffers_.values(values_.stage);
    for (int i = threadIdx.x % kGroupThreads; i < Tile::kValueBytes / 16; i += kGroupThreads) {
      const int key = first + i / (Tile::kValueRowsBytes / 16) * 8 + i / (kPanelRowBytes / 16) % 8;
      if (key < item.first_key || key >= item.seq_len) {
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

  // Replaces scores by their weights 2^(score - base). The base of a row, at first its largest
  // score, follows only a score that is larger by kSlack, so that hardly any tile corrects what was
  // added before; it is a matter of the row alone. Each thread's sum is over its own keys.
  __device__ __forceinline__ void softmax(Rows& rows, float (&correction)[2]) const {
    constexpr float kSlack = 8;  // weights reach 2^kSlack
    float(&scores)[Tile::kKeys / 2] = rows.scores;
    float(&base)[2] = rows.base;
    float top[2][2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      top[j][0] = fmaxf(scores[j * 2], scores[j * 2 + 1]);
      top[j][1] = fmaxf(scores[4 + j * 2], scores[4 + j * 2 + 1]);
    }
#pragma unroll
    for (int i = 8; i < Tile::kKeys / 2; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& t = top[j][i / 4 & 1];
        t = fmaxf(t, fmaxf(scores[i + j * 2], scores[i + j * 2 + 1]));
      }
    }
    float shift[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float t = fmaxf(top[j][0], top[j][1]);
      t = fmaxf(t, __shfl_xor_sync(kAllLanes, t, 1));
      t = fmaxf(t, __shfl_xor_sync(kAllLanes, t, 2)) * scale_log2_;
      const bool grows = t > base[j] + kSlack;
      correction[j] = grows ? exp2_fast(base[j] - t) : 1.f;
      base[j] = grows ? t : base[j];
      shift[j] = base[j] == -INFINITY ? 0.f : -base[j];
    }
    float total[2][2] = {};
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 2; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float& score = scores[i + j * 2 + k];
          score = exp2_fast(fmaf(score, scale_log2_, shift[j]));
          total[j][k] += score;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      rows.sum[j] = rows.sum[j] * correction[j] + (total[j][0] + total[j][1]);
    }
  }

  // The layout of the scores is that of the left operand of the second product.
  static __device__ __forceinline__ void pack_weights(Rows& rows) {
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 4; ++i) {
      rows.weights[i] = pack<T>(rows.scores[i * 2], rows.scores[i * 2 + 1]);
    }
  }

  static __device__ __forceinline__ void rescale(float (&out)[Tile::kValueDim / 2],
                                                 const float (&correction)[2]) {
#pragma unroll
    for (int i = 0; i < Tile::kValueDim / 2; ++i) {
      out[i] *= correction[(i & 2) / 2];
    }
  }

  __device__ __forceinline__ void store(const Rows& rows, const Item& item) const {
    const float(&out)[Tile::kValueDim / 2] = rows.out;
    const float(&base)[2] = rows.base;
    const AttentionArgs& params = args_.params;
    const int lane = threadIdx.x & 31;
    const int c = lane & 3;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float total = rows.sum[j];
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      float factor = params.v_scale / total;
      if (params.sinks != nullptr) {
        const float sink = params.sinks[item.head] * kLog2E;
        const float top = fmaxf(base[j], sink);
        const float shift = exp2_fast(base[j] - top);
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
      for (int n = 0; n < Tile::kValueDim / 8; n += 4) {
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

  const PrefillArgs& args_;
  const Buffers<KV, kHeadDim>& buffers_;
  const int group_;
  const float scale_log2_;
  uint32_t query_parity_ = 0;
  RingPosition<Tile::kKeyStages> keys_;
  RingPosition<Tile::kValueStages> values_;
};

}  // namespace atom::ops::attention_device
