// Inside latent attention for Hopper: the two warpgroups that compute.
//
// Tiles come in pairs. Each warpgroup scores one of them and adds up half of the latent's columns
// over both, so that while one takes a softmax the matrix units work for the other. Warpgroup 0
// scores tile 0, and its weights are added up by both first: by warpgroup 1 while that takes the
// softmax of tile 1, against bases that tile 0 may have raised.
#pragma once

#include "ops/mla_attention/sm90/items.cuh"
#include "ops/mla_attention/sm90/results.cuh"
#include "ops/mla_attention/sm90/tile.cuh"

namespace atom::ops::mla_device {

using attention_device::begin_products;
using attention_device::bytes_of_matrix;
using attention_device::commit_products;
using attention_device::exp2_fast;
using attention_device::named_barrier_arrive;
using attention_device::named_barrier_wait;
using attention_device::pin;
using attention_device::shared_matrix;
using attention_device::wait_for_products;

// Thread (w, g, c) = (warp, lane / 4, lane % 4) has rows 16w + g and 16w + g + 8, and columns 2c
// and 2c + 1 of each 8.
template <int kGroup, bool kFloat8>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Work& work, const Buffers& buffers)
      : work_(work),
        buffers_(buffers),
        results_(work),
        row_(threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4) {
    scale_log2_[0] = scale_log2_[1] = work.params.scale * attention_device::kLog2E;
  }

  __device__ __forceinline__ void run(const Share& share) {
    ItemWalk walk(work_, share);
    Item item;
    while (walk.next(item)) {
      begin(item);
      const bool has_tiles = item.first_tile < item.last_tile;
      if (has_tiles) {
        device::wait_for(buffers_.queries_full(), queries_parity_);
        queries_parity_ ^= 1;
        device::fence_before_copies();
        if constexpr (kFloat8) take_scales();
      }
      if constexpr (kGroup == 0) {
        add_as_first(item);
      } else {
        add_as_second(item);
      }
      finish(item);
    }
  }

 private:
  using Element = ElementOf<kFloat8>;
  // Weights are 2^kWeightBias times as large in float16, whose exponents end early: what is lost of
  // a small one is 2^-32 of a row's largest.
  static constexpr float kWeightBias = kFloat8 ? 7 : 0;

  // Panels of the latent that this warpgroup adds up.
  static constexpr int kFirstPanel = kGroup * kHalfPanels;

  __device__ __forceinline__ void begin(const Item& item) {
#pragma unroll
    for (int i = 0; i < 128; ++i) out_[i] = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      base_[j] = -INFINITY;
      sum_[j] = 0;
      const int row = min(row_ + j * 8, item.num_rows - 1);
      const int query = (item.first_row + row) / work_.num_heads();
      limit_[j] = work_.has_indices() ? item.num_keys : item.first_position + query + 1;
    }
  }

  __device__ __forceinline__ void take_scales() {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      scale_log2_[j] =
          work_.params.scale * attention_device::kLog2E * buffers_.query_scales()[row_ + j * 8];
    }
  }

  // ---- warpgroup 0 -----------------------------------------------------------------------------

  __device__ __forceinline__ void add_as_first(const Item& item) {
    for (int tile = item.first_tile; tile < item.last_tile; tile += 2)
      add_pair_as_first(item, tile);
  }

  __device__ __forceinline__ void add_pair_as_first(const Item& item, int tile) {
    const bool has_second = tile + 1 < item.last_tile;
    const int num_named = count_named(item, tile);
    begin_scores<kLeft0, kRight0>(0, parity0_);
    wait_for_products<0>();
    pin(scores_);
    if (has_second) named_barrier_arrive<2 * kWarpgroup>(kScored0Barrier);
    if (tile + 2 >= item.last_tile) release(buffers_.queries_empty());
    mask(item, tile, num_named);
    float correction[2];
    raise_bases(correction);
    put_bases(0);
    weigh(correction);
    give_weights(0, kWeights0Barrier);
    if (is_any(correction)) rescale(correction);
    begin_products();
    multiply_own(0);
    commit_products();
    wait_for_products<0>();
    pin(out_);
    release(buffers_.empty(kLeft0));
    parity0_ ^= 1;
    if (!has_second) return;
    named_barrier_wait<2 * kWarpgroup>(kWeights1Barrier);
    device::fence_before_copies();
    take_bases(1, correction);
    if (is_any(correction)) rescale(correction);
    begin_products();
    multiply_given(1);
    commit_products();
    wait_for_products<0>();
    pin(out_);
    release(buffers_.empty(kLeft1));
  }

  // ---- warpgroup 1 -----------------------------------------------------------------------------

  __device__ __forceinline__ void add_as_second(const Item& item) {
    for (int tile = item.first_tile; tile < item.last_tile; tile += 2) {
      if (tile + 1 < item.last_tile) {
        add_pair_as_second(item, tile);
      } else {
        release(buffers_.queries_empty());
        begin_given();
        wait_for_products<0>();
        pin(out_);
        release(buffers_.empty(kRight0));
      }
    }
  }

  __device__ __forceinline__ void add_pair_as_second(const Item& item, int tile) {
    const int num_named = count_named(item, tile + 1);
    named_barrier_wait<2 * kWarpgroup>(kScored0Barrier);
    begin_scores<kRight1, kLeft1>(1, parity1_);
    begin_given();
    wait_for_products<1>();
    pin(scores_);
    if (tile + 2 >= item.last_tile) release(buffers_.queries_empty());
    mask(item, tile + 1, num_named);
    float correction[2];
    raise_bases(correction);
    put_bases(1);
    weigh(correction);
    give_weights(1, kWeights1Barrier);
    wait_for_products<0>();
    pin(out_);
    release(buffers_.empty(kRight0));
    if (is_any(correction)) rescale(correction);
    begin_products();
    multiply_own(1);
    commit_products();
    wait_for_products<0>();
    pin(out_);
    release(buffers_.empty(kRight1));
    parity1_ ^= 1;
  }

  // Tile 0, when its weights have come.
  __device__ __forceinline__ void begin_given() {
    float correction[2];
    named_barrier_wait<2 * kWarpgroup>(kWeights0Barrier);
    device::fence_before_copies();
    take_bases(0, correction);
    if (is_any(correction)) rescale(correction);
    begin_products();
    multiply_given(0);
    commit_products();
  }

  // ---- products --------------------------------------------------------------------------------

  template <int kGroupOfTile>
  __device__ __forceinline__ void score_group(uint32_t queries, uint32_t keys, bool accumulate) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      if (!has_panel<kGroupOfTile>(panel)) continue;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t offset = bytes_of_matrix(panel * kPanelBytes + k * 32);
        attention_device::product_of_shared<Element, kKeys, kEightRowsBytes, kEightRowsBytes>(
            scores_, queries + offset, keys + offset, accumulate);
        accumulate = true;
      }
    }
  }

  template <int kFirst, int kSecond>
  __device__ __forceinline__ void begin_scores(int tile, uint32_t parity) {
    const uint32_t queries = shared_matrix(buffers_.queries(), 0);
    const uint32_t keys = shared_matrix(buffers_.tile(tile), 0);
    device::wait_for(buffers_.full(kFirst), parity);
    device::fence_before_copies();
    begin_products();
    score_group<kFirst>(queries, keys, false);
    device::wait_for(buffers_.full(kSecond), parity);
    device::fence_before_copies();
    begin_products();
    score_group<kSecond>(queries, keys, true);
    commit_products();
  }

  __device__ __forceinline__ uint32_t values(int tile) const {
    return shared_matrix(buffers_.tile(tile) + kFirstPanel * kPanelBytes, kPanelBytes);
  }

  // Latents by the weights in registers.
  __device__ __forceinline__ void multiply_own(int tile) {
    const uint32_t latents = values(tile);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      attention_device::product_of_registers<Element, 256, kEightRowsBytes>(
          out_, weights_ + k * 4, latents + bytes_of_matrix(k * 2 * kEightRowsBytes), true);
    }
  }

  // By the other warpgroup's.
  __device__ __forceinline__ void multiply_given(int tile) {
    const uint32_t latents = values(tile);
    const uint32_t weights = shared_matrix(buffers_.weights(tile), 0);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      product_of_shared_weights<Element>(out_,
                                         weights + bytes_of_matrix(k * 32),
                                         latents + bytes_of_matrix(k * 2 * kEightRowsBytes));
    }
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if ((threadIdx.x & 31) == 0) device::arrive(barrier);
  }

  // ---- softmax ---------------------------------------------------------------------------------

  // How many of a tile's keys `indices` names, the first ones; without, all.
  __device__ __forceinline__ int count_named(const Item& item, int tile) const {
    if (!work_.has_indices()) return kKeys;
    const int32_t* indices = work_.params.indices + item.first_token * work_.params.top_k;
    const int key = tile * kKeys + static_cast<int>(threadIdx.x % 32);
    const bool low = key < item.num_keys && indices[key] >= 0;
    const bool high = key + 32 < item.num_keys && indices[key + 32] >= 0;
    return __popc(__ballot_sync(kAllLanes, low)) + __popc(__ballot_sync(kAllLanes, high));
  }

  __device__ __forceinline__ void mask(const Item& item, int tile, int num_named) {
    const int first_key = tile * kKeys;
    const bool all = work_.has_indices() ? num_named == kKeys : first_key + kKeys <= item.sure_keys;
    if (all) return;
    const int c = threadIdx.x & 3;
    // Of this thread's columns.
    const int limits[2] = {min(limit_[0] - first_key, num_named) - c * 2,
                           min(limit_[1] - first_key, num_named) - c * 2};
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int key = i / 4 * 8 + (i & 1);
      scores_[i] = key < limits[(i & 2) / 2] ? scores_[i] : -INFINITY;
    }
  }

  // The base of a row, at first its largest score, follows only a score that is larger by kSlack,
  // so that hardly any tile corrects what was added before.
  __device__ __forceinline__ void raise_bases(float (&correction)[2]) {
    constexpr float kSlack = 8;  // weights reach 2^(kSlack + kWeightBias)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float tops[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int i = j * 2; i < kKeys / 2; i += 4) {
        float& top = tops[i / 4 % 2];
        top = fmaxf(top, fmaxf(scores_[i], scores_[i + 1]));
      }
      float top = fmaxf(tops[0], tops[1]);
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2)) * scale_log2_[j];
      const bool grows = top > base_[j] + kSlack;
      correction[j] = grows ? exp2_fast(base_[j] - top) : 1.f;
      base_[j] = grows ? top : base_[j];
    }
  }

  __device__ __forceinline__ void put_bases(int tile) const {
    if ((threadIdx.x & 3) != 0) return;
    buffers_.bases(tile)[row_] = base_[0];
    buffers_.bases(tile)[row_ + 8] = base_[1];
  }

  __device__ __forceinline__ void take_bases(int tile, float (&correction)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float base = buffers_.bases(tile)[row_ + j * 8];
      correction[j] = base == base_[j] ? 1.f : exp2_fast(base_[j] - base);
      base_[j] = base;
      sum_[j] *= correction[j];
    }
  }

  // Scores become weights 2^(score - base + kWeightBias), of which each thread sums its own keys'.
  __device__ __forceinline__ void weigh(const float (&correction)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float shift = base_[j] == -INFINITY ? 0.f
                          : kFloat8             ? kWeightBias - base_[j]
                                                : -base_[j];
      float totals[2] = {0, 0};
#pragma unroll
      for (int i = j * 2; i < kKeys / 2; i += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float& score = scores_[i + k];
          score = exp2_fast(fmaf(score, scale_log2_[j], shift));
          totals[k] += score;
        }
      }
      sum_[j] = sum_[j] * correction[j] + (totals[0] + totals[1]);
    }
    // The layout of the scores is that of a product's left operand.
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      weights_[i] = attention_device::pack<Element>(scores_[i * 2], scores_[i * 2 + 1]);
    }
  }

  __device__ __forceinline__ bool is_any(const float (&correction)[2]) const {
    return __any_sync(kAllLanes, correction[0] != 1.f || correction[1] != 1.f);
  }

  __device__ __forceinline__ void rescale(const float (&correction)[2]) {
#pragma unroll
    for (int i = 0; i < 128; ++i) out_[i] *= correction[(i & 2) / 2];
  }

  __device__ __forceinline__ void give_weights(int tile, int barrier) const {
    const int c = threadIdx.x & 3;
    const uint32_t target = buffers_.weights(tile) + c * 4;
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(target + panel_offset(row_ + i % 2 * 8, i / 2)),
                   "r"(weights_[i])
                   : "memory");
    }
    device::fence_before_copies();
    named_barrier_arrive<2 * kWarpgroup>(barrier);
  }

  // ---- results ---------------------------------------------------------------------------------

  __device__ __forceinline__ void finish(const Item& item) {
    float total[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float sum = sum_[j];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if ((threadIdx.x & 3) == 0) buffers_.sums(sums_parity_, kGroup)[row_ + j * 8] = sum;
    }
    named_barrier_wait<2 * kWarpgroup>(kSumsBarrier);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      total[j] = buffers_.sums(sums_parity_, 0)[row_ + j * 8] +
                 buffers_.sums(sums_parity_, 1)[row_ + j * 8];
    }
    sums_parity_ ^= 1;
    results_.store<kFirstPanel * kPanelColumns>(item, row_, out_, base_, total);
  }

  const Work& work_;
  const Buffers& buffers_;
  const Results results_;
  const int row_;
  float scale_log2_[2];
  float out_[128];
  float scores_[kKeys / 2];
  uint32_t weights_[kKeys / 4];
  float base_[2];
  float sum_[2];
  int limit_[2];
  uint32_t queries_parity_ = 0;
  uint32_t parity0_ = 0;
  uint32_t parity1_ = 0;
  int sums_parity_ = 0;
};

}  // namespace atom::ops::mla_device
