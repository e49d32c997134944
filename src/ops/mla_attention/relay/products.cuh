// Inside latent attention for Hopper with a thread that relays: what the matrix units do for a
// warpgroup.
#pragma once

#include "ops/mla_attention/relay/results.cuh"

namespace atom::ops::mla_device::relay {

using attention_device::begin_products;
using attention_device::bytes_of_matrix;
using attention_device::commit_products;
using attention_device::named_barrier_arrive;
using attention_device::pin;
using attention_device::shared_matrix;
using attention_device::wait_for_products;

class Products : public Results {
 protected:
  using Results::Results;

  template <Group kPart>
  __device__ __forceinline__ void score_part(uint32_t parity, bool accumulate) {
    const uint32_t queries = shared_matrix(buffers_.queries(), 0);
    const uint32_t keys = shared_matrix(buffers_.tile(tile_of(kPart)), 0);
    device::wait_for(buffers_.full(kPart), parity);
    begin_products();
#pragma unroll
    for (int k = 0; k < num_panels(kPart) * 4; ++k) {
      const uint32_t offset = bytes_of_matrix(panel_of(kPart, k / 4) * kPanelBytes + k % 4 * 32);
      attention_device::product_of_shared<gpu_bfloat16, kKeys, kEightRowsBytes, kEightRowsBytes>(
          scores_, queries + offset, keys + offset, accumulate || k > 0);
    }
  }

  // The part first that was free first.
  template <Group kFirst, Group kSecond>
  __device__ __forceinline__ void score(uint32_t parity) {
    score_part<kFirst>(parity, false);
    score_part<kSecond>(parity, true);
    commit_products();
    wait_for_products<0>();
    pin(scores_);
  }

  __device__ __forceinline__ uint32_t values(int tile, int group) const {
    return shared_matrix(buffers_.tile(tile) + group * kHalfPanels * kPanelBytes, kPanelBytes);
  }

  // Latents by weights.
  __device__ __forceinline__ void multiply(int tile,
                                           int group,
                                           const uint32_t (&weights)[kKeys / 4]) {
    const uint32_t latents = values(tile, group);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      attention_device::product_of_registers<gpu_bfloat16, 256, kEightRowsBytes>(
          out_, weights + k * 4, latents + bytes_of_matrix(k * 2 * kEightRowsBytes), true);
    }
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
    named_barrier_arrive<2 * kWarpgroup>(barrier);
  }

  // The other warpgroup's weights, as left operands.
  __device__ __forceinline__ void take_weights(int tile, uint32_t (&weights)[kKeys / 4]) const {
    const int lane = threadIdx.x & 31;
    const int row = row_ - lane / 4 + lane % 16;
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      uint32_t part[4];
      attention_device::load_matrices(
          part, buffers_.weights(tile) + panel_offset(row, k * 2 + lane / 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k * 4 + i] = part[i];
    }
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if ((threadIdx.x & 31) == 0) device::arrive(barrier);
  }
};

}  // namespace atom::ops::mla_device::relay
