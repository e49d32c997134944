// Inside latent attention for Hopper with a thread that relays: rows in bfloat16, copied as they
// are.
#pragma once

#include "ops/mla_attention/relay/loader.cuh"

namespace atom::ops::mla_device::relay {

class CopyLoader : public Loader<false> {
 protected:
  using Loader::Loader;

  template <Group kPart>
  __device__ void copy_group(const int32_t* slots) const {
    constexpr int kRowsAtOnce = kCopyThreads / 8, kPasses = kKeys / kRowsAtOnce;
    int32_t own_slots[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      own_slots[pass] = slots[tile_of(kPart) * kKeys + pass * kRowsAtOnce + thread_ / 8];
    }
    device::wait_for(buffers_.empty(kPart), parity_of(kPart) ^ 1);
    const int chunk = thread_ % 8, first_row = thread_ / 8;
    const uint32_t target = buffers_.tile(tile_of(kPart)) + panel_offset(first_row, chunk);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const char* source = row_at(own_slots[pass]) + chunk * 16;
#pragma unroll
      for (int i = 0; i < num_panels(kPart); ++i) {
        const int panel = panel_of(kPart, i);
        attention_device::copy_async(target + panel * kPanelBytes + pass * kRowsAtOnce * 128,
                                     source + panel * 128,
                                     own_slots[pass] >= 0);
      }
    }
    arrive_after_copies(buffers_.landed(kPart));
  }

  template <Group kPart>
  __device__ void relay_group() const {
    relay_to(buffers_.landed(kPart), buffers_.full(kPart), parity_of(kPart));
  }

  // Those that `parity` has the slots of.
  __device__ void load_pair(int parity, bool has_second, bool /*is_first*/) const {
    const int32_t* slots = buffers_.slots(parity);
    if (thread_ < kCopyThreads) {
      copy_group<kLeft0>(slots);
      if (has_second) copy_group<kRight1>(slots);
      copy_group<kRight0>(slots);
      if (has_second) copy_group<kLeft1>(slots);
    } else if (thread_ == kRelay) {
      relay_group<kLeft0>();
      if (has_second) relay_group<kRight1>();
      relay_group<kRight0>();
      if (has_second) relay_group<kLeft1>();
    }
    __syncwarp();
  }
};

}  // namespace atom::ops::mla_device::relay
