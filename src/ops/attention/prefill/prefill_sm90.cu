// Persistent blocks of a warpgroup that loads and two or three that compute, the latter with 64
// queries of one head each. A warpgroup hands the scores of the next tile and the values of the
// last one to the matrix units together, and while it takes the softmax the others have them in
// turn (after FlashAttention-3, Shah et al. 2024). Tiles of keys begin at multiples of their size
// and come last first; one that a query does not see leaves it as it is, bit for bit.
#include "ops/attention/prefill/prefill_sm90.h"

#include "ops/attention/prefill/consumer_sm90.cuh"
#include "ops/attention/prefill/copies_cuda.h"
#include "ops/attention/prefill/launch_sm90.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

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

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

// Calls body(Constant<head_dim>{}).
template <typename Body>
gpuError_t dispatch_head_dim(int head_dim, Body&& body) {
  switch (head_dim) {
    case 64:
      return body(Constant<64>{});
    case 128:
      return body(Constant<128>{});
    case 256:
      return body(Constant<256>{});
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename T>
gpuError_t launch_for(const AttentionArgs& params,
                      int min_queries,
                      int32_t* counter,
                      gpuStream_t stream) {
  return dispatch_head_dim(params.head_dim, [&]<int kHeadDim>(Constant<kHeadDim>) {
    if (params.float8_cache) {
      return launch_kernel<T, Float8E4m3, kHeadDim>(params, min_queries, counter, stream);
    }
    return launch_kernel<T, T, kHeadDim>(params, min_queries, counter, stream);
  });
}

gpuError_t launch_for_element(const AttentionArgs& params,
                              int min_queries,
                              int32_t* counter,
                              gpuStream_t stream) {
  return params.element == Element::kBFloat16
             ? launch_for<gpu_bfloat16>(params, min_queries, counter, stream)
             : launch_for<__half>(params, min_queries, counter, stream);
}

}  // namespace

bool supports_attention_prefill_sm90(const AttentionArgs& params) {
  const bool head_dim = params.head_dim == 64 || params.head_dim == 128 || params.head_dim == 256;
  const bool element = params.element == Element::kFloat16 || params.element == Element::kBFloat16;
  const bool block_size = params.block_size == 16 || params.block_size == 32 ||
                          params.block_size == 64 || params.block_size % 128 == 0;
  return head_dim && element && block_size && params.scale > 0 && params.num_kv_heads > 0 &&
         params.num_heads % params.num_kv_heads == 0 &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

size_t attention_prefill_sm90_workspace_size(const AttentionArgs& params) {
  return attention_copies_size(params);
}

gpuError_t launch_attention_prefill_sm90(const AttentionArgs& params,
                                         int32_t min_queries,
                                         void* workspace,
                                         size_t workspace_size,
                                         int32_t* counter,
                                         gpuStream_t stream) {
  if (workspace_size == 0) {
    return launch_for_element(params, min_queries, counter, stream);
  }
  AttentionCopies copies;
  gpuError_t error =
      launch_attention_copies(params, min_queries, workspace, workspace_size, stream, copies);
  if (error == cudaSuccess) {
    error = launch_for_element(copies.copied, min_queries, counter, stream);
  }
  if (error == cudaSuccess && copies.has_direct) {
    error = launch_for_element(copies.direct, min_queries, counter, stream);
  }
  return error;
}

}  // namespace atom::ops
