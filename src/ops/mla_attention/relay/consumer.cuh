// Inside latent attention for Hopper with a thread that relays: the two warpgroups that compute.
#pragma once

#include "ops/mla_attention/relay/pairs.cuh"

namespace atom::ops::mla_device::relay {

template <int kGroup>
class Consumer : private Pairs {
 public:
  __device__ __forceinline__ Consumer(const Work& work, const Buffers& buffers)
      : Pairs(work, buffers) {}

  __device__ __forceinline__ void run(const Share& share) {
    ItemReader reader(work_, share, buffers_, 1 + kGroup, kItemBarrier + kGroup);
    const Item& item = reader.item();
    while (reader.next()) {
      begin(item);
      const bool has_tiles = item.first_tile < item.last_tile;
      if (has_tiles) {
        device::wait_for(buffers_.queries_full(), queries_parity_);
        queries_parity_ ^= 1;
      }
      for (int tile = item.first_tile; tile < item.last_tile; tile += 2) {
        const bool has_second = tile + 1 < item.last_tile;
        const bool is_last = tile + 2 >= item.last_tile;
        if constexpr (kGroup == 0) {
          add_pair_as_first(item, tile, has_second, is_last);
        } else {
          add_pair_as_second(item, tile, has_second, is_last);
        }
        parity0_ ^= 1;
        if (has_second) parity1_ ^= 1;
      }
      finish(item, kGroup);
    }
  }

 private:
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

  uint32_t queries_parity_ = 0;
};

}  // namespace atom::ops::mla_device::relay
