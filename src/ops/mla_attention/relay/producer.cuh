// Inside latent attention for Hopper with a thread that relays: the warpgroup that loads.
#pragma once

#include <type_traits>

#include "ops/mla_attention/relay/codes.cuh"
#include "ops/mla_attention/relay/copies.cuh"

namespace atom::ops::mla_device::relay {

template <bool kFloat8>
class Producer : public std::conditional_t<kFloat8, CodeLoader, CopyLoader> {
  using Base = std::conditional_t<kFloat8, CodeLoader, CopyLoader>;

 public:
  __device__ Producer(const Work& work, const Buffers& buffers) : Base(work, buffers) {}

  __device__ void run(const Share& share) {
    ItemReader reader(this->work_, share, this->buffers_, 0, kProducerBarrier);
    const Item& item = reader.item();
    while (reader.next()) {
      if (item.first_tile < item.last_tile) load_item(item);
    }
  }

 private:
  __device__ void load_item(const Item& item) {
    const int32_t slot = this->find_slot(item, item.first_tile);
    int32_t next_slot = this->find_slot(item, item.first_tile + 2);
    this->load_queries(item);
    this->put_slots(0, slot);
    int parity = 0;
    for (int tile = item.first_tile; tile < item.last_tile; tile += 2) {
      // All have read the slots of the pair before.
      attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
      this->put_slots(parity ^ 1, next_slot);
      this->prefetch_row(next_slot);
      next_slot = this->find_slot(item, tile + 4);
      const bool has_second = tile + 1 < item.last_tile;
      this->load_pair(parity, has_second, tile == item.first_tile);
      this->parity0_ ^= 1;
      if (has_second) this->parity1_ ^= 1;
      parity ^= 1;
    }
  }
};

}  // namespace atom::ops::mla_device::relay
