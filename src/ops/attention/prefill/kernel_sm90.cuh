// Persistent blocks of a warpgroup that loads and two or three that compute, the latter with 64
// queries of one head each. A warpgroup hands the scores of the next tile and the values of the
// last one to the matrix units together, and while it takes the softmax the others have them in
// turn (after FlashAttention-3, Shah et al. 2024). Tiles of keys begin at multiples of their size
// and come last first; one that a query does not see leaves it as it is, bit for bit.
#pragma once

#include "ops/attention/prefill/consumer_sm90.cuh"
#include "ops/attention/prefill/launch_sm90.cuh"

namespace atom::ops::attention_device {

template <typename T, typename KV, int kHeadDim>
__global__ void __launch_bounds__(PrefillTile<KV, kHeadDim>::kThreads, 1)
    attention_prefill_kernel(const __grid_constant__ PrefillArgs args) {
  using Tile = PrefillTile<KV, kHeadDim>;
  // All together they have 504 or 512 for each thread of a warpgroup.
  constexpr int kProducerRegisters = Tile::kIs8Bit ? 72 : Tile::kGroups == 3 ? 32 : 40;
  constexpr int kConsumerRegisters = Tile::kIs8Bit ? 216 : Tile::kGroups == 3 ? 160 : 232;
  extern __shared__ char shared[];
  __shared__ __align__(8) uint64_t barriers[Tile::kNumBarriers];
  __shared__ Item items[Tile::kItems];
  Buffers<KV, kHeadDim> buffers;
  buffers.base = (shared_address(shared) + 1023) & ~1023u;
  buffers.barriers = shared_address(barriers);
  buffers.items = items;
  if (threadIdx.x == 0) {
    init_barriers(buffers);
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if constexpr (Tile::kIs8Bit) {
      ExpandingProducer<T, KV, kHeadDim>(args, buffers).run();
    } else if (threadIdx.x < 32) {
      Producer<KV, kHeadDim, true, false>(args, buffers).run();
    } else if (threadIdx.x < 64) {
      Producer<KV, kHeadDim, false, false>(args, buffers).run();
    } else if (threadIdx.x < 96) {
      find_items(args, buffers);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Consumer<T, KV, kHeadDim>(args, buffers).run();
  }
}

template <typename T, typename KV, int kHeadDim>
gpuError_t launch_kernel(const AttentionArgs& params,
                         int min_queries,
                         int32_t* counter,
                         gpuStream_t stream) {
  return launch_prefill<KV, kHeadDim>(
      attention_prefill_kernel<T, KV, kHeadDim>, params, min_queries, counter, stream);
}

}  // namespace atom::ops::attention_device
