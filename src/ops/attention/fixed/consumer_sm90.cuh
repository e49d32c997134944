// Inside the Hopper prefill attention of a fixed order: the warpgroups that compute, by the steps
// of prefill/prefill_mma.cuh's WarpRows and with segments that are joined as in
// fixed/fixed_cuda.cu, bit for bit. Each score and each output is a sum over ascending groups
// of 16 by any matrix instruction.
#pragma once

#include "ops/attention/fixed/order.cuh"
#include "ops/attention/prefill/prefill_sm90.cuh"

namespace atom::ops::attention_device {

// A warpgroup. Thread (w, g, c) = (warp, lane / 4, lane % 4) has rows 16w + g and 16w + g + 8, and
// columns 2c and 2c + 1 of each 8. The producers' tiles are taken in parts, which are the tiles of
// the fixed order: part p of the keys begins at key p * kFixedTileKeys. Out: of the results.
template <typename T, typename Out, int kHeadDim>
class FixedConsumer {
 public:
  using Tile = PrefillTile<T, kHeadDim>;

  __device__ __forceinline__ FixedConsumer(const PrefillArgs& args,
                                           const Buffers<T, kHeadDim>& buffers)
      : args_(args),
        buffers_(buffers),
        group_(__shfl_sync(kAllLanes, threadIdx.x / kGroupThreads - 1, 0)),
        scale_log2_(args.params.scale * args.params.k_scale * kLog2E) {}

  // An item's first scores are computed while the result of the one before is stored.
  __device__ __forceinline__ void run() {
    ItemReader<T, kHeadDim> items(buffers_);
    Item item;
    Rows rows;
    if (group_ == Tile::kGroups - 1) {
      named_barrier_arrive<2 * kGroupThreads>(kTurnBarrier);  // group 0 is the first
    }
    bool has_item = items.next(item);
    if (has_item) {
      wait_for_first();
      begin_products();
      multiply_keys(rows.scores, 0);
      commit_products();
      wait_for_products<0>();
      weigh_first(rows, item);
    }
    while (has_item) {
      const int end = (item.last_tile + 1) * kParts;
      for (int part = item.first_tile * kParts + 1; part < end; ++part) {
        add_part(rows, item, part);
      }
      begin_products();
      multiply_values(rows, kParts - 1);
      commit_products();
      const Item done = item;
      has_item = items.next(item);
      if (has_item) {
        wait_for_first();
        begin_products();
        multiply_keys(rows.scores, 0);
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
  static constexpr int kParts = Tile::kKeys / kFixedTileKeys;
  static_assert(kParts == 2);

  // What a thread has of its two rows.
  struct Rows {
    float scores[kFixedTileKeys / 2];
    uint32_t weights[kFixedTileKeys / 4];
    float out[kHeadDim / 2];  // of the segment
    float maximum[2];
    float sum[2];  // of this thread's keys
    bool has_out;
    JoinedSoftmax softmax[2];
    float joined[kHeadDim / 2];
    int segment;
    int segment_end;  // in parts
  };

  __device__ __forceinline__ void wait_for_first() {
    wait_for(buffers_.queries_full(group_), query_parity_);
    query_parity_ ^= 1;
    wait_for(buffers_.keys_full(keys_.stage), keys_.parity);
  }

  // Weighs an item's first scores.
  __device__ __forceinline__ void weigh_first(Rows& rows, const Item& item) {
    const int part = item.first_tile * kParts;
    rows.segment = segment_of_key(part * kFixedTileKeys);
    rows.segment_end = first_key_of_segment(rows.segment + 1) / kFixedTileKeys;
    begin_segment(rows);
#pragma unroll
    for (int j = 0; j < 2; ++j) rows.softmax[j] = {};
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) rows.joined[i] = 0;
    float correction[2];
    pin(rows.scores);
    mask(rows.scores, item, part);
    weigh(rows, correction);
    pack_weights(rows);
    rows.has_out = false;
  }

  // The scores of a part, and the values of the one before it.
  __device__ __forceinline__ void add_part(Rows& rows, const Item& item, int part) {
    const int of_keys = part % kParts, of_values = (part - 1) % kParts;
    if (of_keys == 0) {
      wait_for(buffers_.keys_full(keys_.stage), keys_.parity);
    }
    if (of_values == 0) {
      wait_for(buffers_.values_full(values_.stage), values_.parity);
      clear_unwritten(item, (part - 1) / kParts);
    }
    named_barrier_wait<2 * kGroupThreads>(kTurnBarrier + group_);
    begin_products();
    multiply_keys(rows.scores, of_keys);
    commit_products();
    multiply_values(rows, of_values);
    commit_products();
    named_barrier_arrive<2 * kGroupThreads>(kTurnBarrier +
                                            (group_ + 1 == Tile::kGroups ? 0 : group_ + 1));
    wait_for_products<1>();
    pin(rows.scores);
    if (of_keys == kParts - 1) {
      release(buffers_.keys_empty(keys_.stage));
      keys_.advance();
      if (part / kParts == item.last_tile) {
        release(buffers_.queries_empty(group_));
      }
    }
    mask(rows.scores, item, part);
    const bool starts = part == rows.segment_end;
    float before[2], sum[2], correction[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      before[j] = rows.maximum[j];
      sum[j] = rows.sum[j];
    }
    if (starts) {
      ++rows.segment;
      rows.segment_end = first_key_of_segment(rows.segment + 1) / kFixedTileKeys;
      begin_segment(rows);
    }
    weigh(rows, correction);
    pin(rows.scores);
    // Not one wait after the branch: the assembler would move it in front of the exponentials,
    // which do not need it, and they would not overlap the products.
    if (starts) {
      wait_for_products<0>();
      pin(rows.out);
      join(rows, before, sum);
    } else {
      wait_for_products<0>();
      pin(rows.out);
      rescale(rows.out, correction);
    }
    rows.has_out = !starts;
    if (of_values == kParts - 1) {
      release(buffers_.values_empty(values_.stage));
      values_.advance();
    }
    pack_weights(rows);
  }

  __device__ __forceinline__ void finish(Rows& rows, const Item& item) {
    pin(rows.out);
    release(buffers_.values_empty(values_.stage));
    values_.advance();
    join(rows, rows.maximum, rows.sum);
    store(rows, item);
  }

  static __device__ __forceinline__ void begin_segment(Rows& rows) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      rows.maximum[j] = -INFINITY;
      rows.sum[j] = 0;
    }
  }

  // The segment's results, with these maxima and sums.
  static __device__ __forceinline__ void join(Rows& rows,
                                              const float (&maximum)[2],
                                              const float (&sum)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float all = __fadd_rn(sum[j], __shfl_xor_sync(kAllLanes, sum[j], 1));
      all = __fadd_rn(all, __shfl_xor_sync(kAllLanes, all, 2));
      if (maximum[j] == -INFINITY) continue;  // the row sees nothing of it
      const JoinedSoftmax::Factors factors = rows.softmax[j].add(maximum[j], all);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = n * 4 + j * 2; i < n * 4 + j * 2 + 2; ++i) {
          rows.joined[i] = factors.join(rows.joined[i], rows.out[i]);
        }
      }
    }
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if ((threadIdx.x & 31) == 0) {
      arrive(barrier);
    }
  }

  __device__ __forceinline__ void multiply_keys(float (&scores)[kFixedTileKeys / 2],
                                                int part) const {
    constexpr int kPartBytes = kFixedTileKeys / 8 * Tile::kRowsBytes;
    const uint32_t queries = shared_matrix(buffers_.queries(group_), 0);
    const uint32_t keys = shared_matrix(buffers_.keys(keys_.stage) + part * kPartBytes, 0);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const int panel = k / 4;
      const int byte = k % 4 * 32;
      product_of_shared<T, kFixedTileKeys, kPieceBytes, Tile::kRowsBytes>(
          scores,
          queries + bytes_of_matrix(panel * Tile::kQueryPanelBytes + byte),
          keys + bytes_of_matrix(panel * kPieceBytes + byte),
          k > 0);
    }
  }

  __device__ __forceinline__ void multiply_values(Rows& rows, int part) const {
    constexpr int kPartBytes = kFixedTileKeys / 8 * Tile::kRowsBytes;
    const uint32_t values =
        shared_matrix(buffers_.values(values_.stage) + part * kPartBytes, kPieceBytes);
#pragma unroll
    for (int k = 0; k < kFixedTileKeys / 16; ++k) {
      product_of_registers<T, kHeadDim, Tile::kRowsBytes>(
          rows.out,
          rows.weights + k * 4,
          values + bytes_of_matrix(k * 2 * Tile::kRowsBytes),
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
    for (int i = threadIdx.x % kGroupThreads; i < Tile::kBytes / 16; i += kGroupThreads) {
      const int key = first + i / (Tile::kRowsBytes / 16) * 8 + i / (kPanelRowBytes / 16) % 8;
      if (key < item.first_key || key >= item.seq_len) {
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + i * 16), "r"(0)
                     : "memory");
      }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    named_barrier_wait<kGroupThreads>(kClearBarrier + group_);
  }

  __device__ __forceinline__ void mask(float (&scores)[kFixedTileKeys / 2],
                                       const Item& item,
                                       int part) const {
    const int first_key = part * kFixedTileKeys;
    const int first_position = item.position + group_ * kGroupRows;
    const int last_position = first_position + kGroupRows - 1;
    const int window = args_.params.sliding_window;
    const bool future = first_key + kFixedTileKeys - 1 > first_position;
    const bool past = window != 0 && first_key <= last_position - window;
    if (!future && !past) {
      return;
    }
    const int lane = threadIdx.x & 31;
    const int row = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < kFixedTileKeys / 2; ++i) {
      const int key = first_key + i / 4 * 8 + (lane & 3) * 2 + (i & 1);
      const int position = first_position + row + (i & 2) * 4;
      const bool visible = key <= position && (window == 0 || key > position - window);
      scores[i] = visible ? scores[i] : -INFINITY;
    }
  }

  // Replaces scores by their weights against the largest one of the segment so far.
  __device__ __forceinline__ void weigh(Rows& rows, float (&correction)[2]) const {
    float(&scores)[kFixedTileKeys / 2] = rows.scores;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float top = -INFINITY;
#pragma unroll
      for (int i = j * 2; i < kFixedTileKeys / 2; i += 4) {
        top = fmaxf(top, fmaxf(scores[i], scores[i + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      top = fmaxf(rows.maximum[j], __fmul_rn(top, scale_log2_));
      const float base = top == -INFINITY ? 0.f : top;
      correction[j] = exp2_fast(__fsub_rn(rows.maximum[j], base));
      rows.maximum[j] = top;
      rows.sum[j] = __fmul_rn(rows.sum[j], correction[j]);
#pragma unroll
      for (int i = j * 2; i < kFixedTileKeys / 2; i += 4) {
        scores[i] = weight_of(scores[i], scale_log2_, base);
        scores[i + 1] = weight_of(scores[i + 1], scale_log2_, base);
        rows.sum[j] = __fadd_rn(rows.sum[j], __fadd_rn(scores[i], scores[i + 1]));
      }
    }
  }

  // The layout of the scores is that of the left operand of the second product.
  static __device__ __forceinline__ void pack_weights(Rows& rows) {
#pragma unroll
    for (int i = 0; i < kFixedTileKeys / 4; ++i) {
      rows.weights[i] = pack<T>(rows.scores[i * 2], rows.scores[i * 2 + 1]);
    }
  }

  static __device__ __forceinline__ void rescale(float (&out)[kHeadDim / 2],
                                                 const float (&correction)[2]) {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) {
      out[i] *= correction[(i & 2) / 2];
    }
  }

  __device__ __forceinline__ void store(const Rows& rows, const Item& item) const {
    const AttentionArgs& params = args_.params;
    const int lane = threadIdx.x & 31;
    const int c = lane & 3;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const JoinedSoftmax& softmax = rows.softmax[j];
      const float factor = normalizer(params, item.head, softmax.maximum, softmax.sum);
      const int row =
          group_ * kGroupRows + threadIdx.x % kGroupThreads / 32 * 16 + lane / 4 + j * 8;
      Out* target = static_cast<Out*>(params.out) +
                    (item.first_token + row) * params.out_token_stride +
                    item.head * params.out_head_stride;
      const bool valid = row < item.num_queries;
      // Four threads have the pairs 0 .. 3 of each 8 elements; of 32 elements, thread c collects
      // the 8 from 8c on.
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; n += 4) {
        uint32_t own[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int first = (n + i) * 4 + j * 2;
          own[i] = pack<Out>(rows.joined[first] * factor, rows.joined[first + 1] * factor);
        }
        const uint4 bits = transpose_of_four(own, c);
        if (valid) {
          *reinterpret_cast<uint4*>(target + n * 8 + c * 8) = bits;
        }
      }
    }
  }

  const PrefillArgs& args_;
  const Buffers<T, kHeadDim>& buffers_;
  const int group_;
  const float scale_log2_;
  uint32_t query_parity_ = 0;
  RingPosition<Tile::kKeyStages> keys_;
  RingPosition<Tile::kValueStages> values_;
};

}  // namespace atom::ops::attention_device
