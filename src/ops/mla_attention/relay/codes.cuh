// Inside latent attention for Hopper with a thread that relays: rows in FP8, which become bfloat16
// in registers.
#pragma once

#include "ops/mla_attention/relay/loader.cuh"

namespace atom::ops::mla_device::relay {

class CodeLoader : public Loader<true> {
 protected:
  using Loader::Loader;

  static constexpr int kCodePasses = kKeys / 32;  // of a panel: a thread has 16 codes of each

  template <Group kPart>
  __device__ void load_codes(const int32_t* slots) {
#pragma unroll
    for (int pass = 0; pass < kCodePasses; ++pass) {
      const int32_t slot = slots[tile_of(kPart) * kKeys + pass * 32 + thread_ / 4];
      const char* source = row_at(slot) + thread_ % 4 * 16;
#pragma unroll
      for (int i = 0; i < num_panels(kPart); ++i) {
        codes_[i][pass] =
            slot >= 0
                ? __ldg(reinterpret_cast<const uint4*>(source + panel_of(kPart, i) * kPanelColumns))
                : uint4{0, 0, 0, 0};
      }
    }
  }

  static __device__ void store_chunk(uint32_t address, uint32_t low, uint32_t high) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(attention_device::expand_to<gpu_bfloat16>(low & 0xffffu)),
                 "r"(attention_device::expand_to<gpu_bfloat16>(low >> 16)),
                 "r"(attention_device::expand_to<gpu_bfloat16>(high & 0xffffu)),
                 "r"(attention_device::expand_to<gpu_bfloat16>(high >> 16))
                 : "memory");
  }

  // Stores a group's codes, expanded, and has those of the next one on their way. A place is free
  // for a panel's codes once they are stored.
  template <Group kPart, Group kNext>
  __device__ void expand_group(const int32_t* next_slots) {
    device::wait_for(buffers_.empty(kPart), parity_of(kPart) ^ 1);
#pragma unroll
    for (int i = 0; i < num_panels(kPart); ++i) {
      const uint32_t panel = buffers_.tile(tile_of(kPart)) + panel_of(kPart, i) * kPanelBytes;
#pragma unroll
      for (int pass = 0; pass < kCodePasses; ++pass) {
        const int row = pass * 32 + thread_ / 4, chunk = thread_ % 4 * 2;
        const uint4& codes = codes_[i][pass];
        store_chunk(panel + panel_offset(row, chunk), codes.x, codes.y);
        store_chunk(panel + panel_offset(row, chunk + 1), codes.z, codes.w);
      }
    }
    load_codes<kNext>(next_slots);
    device::fence_before_copies();
    device::arrive(buffers_.full(kPart));
  }

  // Those that `parity` has the slots of; those of the next pair are there, too, for who waits.
  __device__ void load_pair(int parity, bool has_second, bool is_first) {
    attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
    const int32_t* slots = buffers_.slots(parity);
    const int32_t* next_slots = buffers_.slots(parity ^ 1);
    if (is_first) load_codes<kLeft0>(slots);
    if (has_second) {
      expand_group<kLeft0, kRight1>(slots);
      expand_group<kRight1, kRight0>(slots);
      expand_group<kRight0, kLeft1>(slots);
      expand_group<kLeft1, kLeft0>(next_slots);
    } else {
      expand_group<kLeft0, kRight0>(slots);
      expand_group<kRight0, kLeft0>(next_slots);
    }
  }

  uint4 codes_[kHalfPanels + 1][kCodePasses];
};

}  // namespace atom::ops::mla_device::relay
