// Inside latent attention for Hopper with a thread that relays: how the two warpgroups that compute
// share a pair of tiles. Each scores one of them and adds up half of the latent's columns over
// both, so that while one takes a softmax the matrix units work for the other (the schedule of
// FlashMLA's decode kernel, DeepSeek 2025): warpgroup 0 weighs tile 0 first, warpgroup 1 tile 1
// against what came out as the rows' bases; then they exchange weights.
#pragma once

#include "ops/mla_attention/relay/products.cuh"

namespace atom::ops::mla_device::relay {

class Pairs : public Products {
 protected:
  using Products::Products;

  // ---- warpgroup 0 -----------------------------------------------------------------------------

  __device__ __forceinline__ void add_pair_as_first(const Item& item,
                                                    int tile,
                                                    bool has_second,
                                                    bool is_last) {
    const int num_named = count_named(item, tile);
    score<kLeft0, kRight0>(parity0_);
    if (is_last) release(buffers_.queries_empty());
    mask(item, tile, num_named);
    float correction[2];
    raise_bases(correction);
    if (has_second) {
      put_bases(0);
      named_barrier_arrive<2 * kWarpgroup>(kBase0Barrier);
    }
    weigh(correction);
    if (!has_second) {
      put_bases(0);
      give_weights(0, kWeights0Barrier);
    }
    if (is_any(correction)) rescale(correction);
    begin_products();
    multiply(0, 0, weights_);
    commit_products();
    if (has_second) {
      named_barrier_wait<2 * kWarpgroup>(kWeights1Barrier);
      take_bases(1, correction);
      if (is_any(correction)) {
        wait_for_products<0>();
        pin(out_);
        rescale(correction);
        rescale_weights(correction);
        sum_[0] *= correction[0];
        sum_[1] *= correction[1];
      }
      give_weights(0, kWeights0Barrier);
      uint32_t given[kKeys / 4];
      take_weights(1, given);
      begin_products();
      multiply(1, 0, given);
      commit_products();
      wait_for_products<1>();
      release(buffers_.empty(kLeft0));
      wait_for_products<0>();
      pin(out_);
      release(buffers_.empty(kLeft1));
    } else {
      wait_for_products<0>();
      pin(out_);
      release(buffers_.empty(kLeft0));
    }
  }

  // ---- warpgroup 1 -----------------------------------------------------------------------------

  __device__ __forceinline__ void add_pair_as_second(const Item& item,
                                                     int tile,
                                                     bool has_second,
                                                     bool is_last) {
    float correction[2];
    if (!has_second) {
      release(buffers_.queries_empty());
      named_barrier_wait<2 * kWarpgroup>(kWeights0Barrier);
      take_bases(0, correction);
      sum_[0] *= correction[0];
      sum_[1] *= correction[1];
      if (is_any(correction)) rescale(correction);
      uint32_t given[kKeys / 4];
      take_weights(0, given);
      begin_products();
      multiply(0, 1, given);
      commit_products();
      wait_for_products<0>();
      pin(out_);
      release(buffers_.empty(kRight0));
      return;
    }
    const int num_named = count_named(item, tile + 1);
    score<kRight1, kLeft1>(parity1_);
    if (is_last) release(buffers_.queries_empty());
    mask(item, tile + 1, num_named);
    named_barrier_wait<2 * kWarpgroup>(kBase0Barrier);
    float raised[2];
    take_bases(0, correction);
    raise_bases(raised);
    correction[0] *= raised[0];
    correction[1] *= raised[1];
    put_bases(1);
    weigh(correction);
    give_weights(1, kWeights1Barrier);
    if (is_any(correction)) rescale(correction);
    begin_products();
    multiply(1, 1, weights_);
    commit_products();
    named_barrier_wait<2 * kWarpgroup>(kWeights0Barrier);
    uint32_t given[kKeys / 4];
    take_weights(0, given);
    begin_products();
    multiply(0, 1, given);
    commit_products();
    wait_for_products<1>();
    release(buffers_.empty(kRight1));
    wait_for_products<0>();
    pin(out_);
    release(buffers_.empty(kRight0));
  }

  uint32_t parity0_ = 0;
  uint32_t parity1_ = 0;
};

}  // namespace atom::ops::mla_device::relay
