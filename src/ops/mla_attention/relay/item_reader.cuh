// Inside latent attention for Hopper with a thread that relays: how warps find their items.
#pragma once

#include <new>

#include "ops/mla_attention/relay/tile.cuh"
#include "ops/mla_attention/sm90/items.cuh"

namespace atom::ops::mla_device::relay {

// Of a sequence's first item.
__device__ inline int first_place_of(const Work& work, int unit) {
  const int64_t rows = int64_t{work.params.batch.query_start[unit]} * work.num_heads();
  return static_cast<int>(rows / kRows) + unit;
}

// unit_of_place() by a warp, whose lanes look at all units together: their loads do not wait for
// one another.
__device__ inline int find_unit_of_place(const Work& work, int place, int& item) {
  if (work.has_indices()) return unit_of_place(work, place, item);
  int begun = 0, last_place = 0;  // units that begin at the place or before
  for (int unit = threadIdx.x % 32; unit < num_units(work.params); unit += 32) {
    const int first = first_place_of(work, unit);
    if (first > place) continue;
    ++begun;
    last_place = first;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    begun += __shfl_xor_sync(kAllLanes, begun, distance);
    last_place = max(last_place, __shfl_xor_sync(kAllLanes, last_place, distance));
  }
  item = place - last_place;
  return begun - 1;
}

// The items of a block for a warpgroup, whose first thread finds them. They are in shared memory,
// so that nobody spends registers on them.
class ItemReader {
 public:
  __device__ ItemReader(
      const Work& work, const Share& share, const Buffers& buffers, int warpgroup, int barrier)
      : memory_(*reinterpret_cast<Memory*>(buffers.memory + Shared::kItems +
                                           warpgroup * Shared::kItemBytes)),
        barrier_(barrier) {
    static_assert(sizeof(Memory) <= Shared::kItemBytes);
    if (is_first()) new (&memory_.walk) ItemWalk(work, share);
  }

  __device__ bool next() {
    attention_device::named_barrier_wait<kWarpgroup>(barrier_);  // all are done with the last one
    if (is_first() && !memory_.walk.next(memory_.item)) memory_.item.num_rows = 0;
    attention_device::named_barrier_wait<kWarpgroup>(barrier_);
    return memory_.item.num_rows > 0;
  }

  __device__ const Item& item() const { return memory_.item; }

 private:
  struct Memory {
    ItemWalk walk;
    Item item;
  };

  static __device__ bool is_first() { return threadIdx.x % kWarpgroup == 0; }

  Memory& memory_;
  const int barrier_;
};

}  // namespace atom::ops::mla_device::relay
