// Persistent blocks of a warpgroup that loads and two or three that compute, the latter with 64
// queries of one head each. A warpgroup hands the scores of the next tile and the values of the
// last one to the matrix units together, and while it takes the softmax the others have them in
// turn (after FlashAttention-3, Shah et al. 2024). Tiles of keys begin at multiples of their size
// and come last first; one that a query does not see leaves it as it is, bit for bit.
#include "ops/attention/attention_prefill_sm90.h"

#include "ops/attention/attention_copies_cuda.h"
#include "ops/attention/attention_prefill_consumer_sm90.cuh"
#include "ops/attention/attention_prefill_producer_sm90.cuh"
#include "ops/device/tensor_map.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

template <typename KV, int kHeadDim>
__device__ void init_barriers(const Buffers<KV, kHeadDim>& buffers) {
  using Tile = PrefillTile<KV, kHeadDim>;
  const int num_producers = Tile::kIs8Bit ? kGroupThreads : 1;
  for (int group = 0; group < Tile::kGroups; ++group) {
    init_barrier(buffers.queries_full(group), 1);
    init_barrier(buffers.queries_empty(group), kGroupThreads / 32);
  }
  for (int stage = 0; stage < Tile::kKeyStages; ++stage) {
    init_barrier(buffers.keys_full(stage), num_producers);
    init_barrier(buffers.keys_empty(stage), Tile::kConsumerWarps);
  }
  for (int stage = 0; stage < Tile::kValueStages; ++stage) {
    init_barrier(buffers.values_full(stage), num_producers);
    init_barrier(buffers.values_empty(stage), Tile::kConsumerWarps);
  }
  for (int stage = 0; stage < Tile::kRawStages; ++stage) {
    init_barrier(buffers.raw_full(stage), 1);
  }
  for (int slot = 0; slot < Tile::kItems; ++slot) {
    init_barrier(buffers.item_full(slot), 1);
    init_barrier(buffers.item_empty(slot), Tile::kItemReaders);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

template <typename KV, int kHeadDim>
__device__ void find_items(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers) {
  ItemFinder<KV, kHeadDim> finder(args, buffers);
  while (finder.put_next().sequence >= 0) {
  }
}

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
      Producer<KV, kHeadDim, true>(args, buffers).run();
    } else if (threadIdx.x < 64) {
      Producer<KV, kHeadDim, false>(args, buffers).run();
    } else if (threadIdx.x < 96) {
      find_items(args, buffers);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Consumer<T, KV, kHeadDim>(args, buffers).run();
  }
}

template <int kRank>
struct MapShape {
  cuuint64_t sizes[kRank];        // the innermost first
  cuuint64_t strides[kRank - 1];  // bytes
  cuuint32_t box[kRank];
};

template <int kRank>
bool encode_map(CUtensorMap* map,
                AttentionElement element,
                const void* data,
                const MapShape<kRank>& shape) {
  static const EncodeTiled encode = find_encode_tiled();
  if (encode == nullptr) {
    return false;
  }
  cuuint32_t element_strides[kRank];
  for (cuuint32_t& stride : element_strides) {
    stride = 1;
  }
  const bool is_8bit = element == AttentionElement::kFloat8E4m3;
  const CUtensorMapDataType type = is_8bit ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : element == AttentionElement::kBfloat16
                                       ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(map,
                type,
                kRank,
                const_cast<void*>(data),
                shape.sizes,
                shape.strides,
                shape.box,
                element_strides,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                is_8bit ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

cuuint64_t size_of(int64_t value) {
  return static_cast<cuuint64_t>(value);
}

// A box is a panel of 64 rows of one head.
bool encode_queries(const AttentionGpuParams& params, CUtensorMap* map) {
  const MapShape<3> shape = {
      {size_of(params.head_dim), size_of(params.num_heads), size_of(params.num_tokens)},
      {size_of(params.q_head_stride * 2), size_of(params.q_token_stride * 2)},
      {kPanelElements, 1, kGroupRows}};
  return encode_map(map, params.element, params.q, shape);
}

// A box is `box_tokens` rows of one head: as they are with elements of 8 bits, with those of 16 in
// the order of the consumers' tiles.
bool encode_cache(const AttentionGpuParams& params,
                  const void* cache,
                  int box_tokens,
                  CUtensorMap* map) {
  const int64_t slots = int64_t{params.num_blocks} * params.block_size;
  const int64_t head = params.head_dim, slot = params.num_kv_heads * head;
  const auto box = static_cast<cuuint32_t>(box_tokens);
  if (params.kv_element == AttentionElement::kFloat8E4m3) {
    const MapShape<3> shape = {{size_of(head), size_of(params.num_kv_heads), size_of(slots)},
                               {size_of(head), size_of(slot)},
                               {static_cast<cuuint32_t>(head), 1, box}};
    return encode_map(map, params.kv_element, cache, shape);
  }
  const auto panels = static_cast<cuuint32_t>(head / kPanelElements);
  const MapShape<5> shape = {
      {kPanelElements, 8, panels, size_of(slots / 8), size_of(params.num_kv_heads)},
      {size_of(slot * 2), kPanelRowBytes, size_of(slot * 2 * 8), size_of(head * 2)},
      {kPanelElements, 8, panels, box / 8, 1}};
  return encode_map(map, params.kv_element, cache, shape);
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

template <typename T, typename KV, int kHeadDim>
gpuError_t launch_kernel(const AttentionGpuParams& params,
                         int min_queries,
                         int32_t* counter,
                         gpuStream_t stream) {
  using Tile = PrefillTile<KV, kHeadDim>;
  PrefillArgs args;
  args.params = params;
  args.min_queries = min_queries;
  args.counter = counter;
  args.box_tokens = params.block_size < Tile::kKeys ? params.block_size : Tile::kKeys;
  const int64_t max_items =
      (int64_t{params.num_tokens} / Tile::kRows + params.num_sequences) * params.num_heads;
  if (max_items == 0) {
    return cudaSuccess;
  }
  if (!encode_queries(params, &args.queries) ||
      !encode_cache(params, params.k_cache, args.box_tokens, &args.keys) ||
      !encode_cache(params, params.v_cache, args.box_tokens, &args.values)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = attention_prefill_kernel<T, KV, kHeadDim>;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (error != cudaSuccess) {
    return error;
  }
  const int64_t max_blocks = device_attribute(cudaDevAttrMultiProcessorCount);
  const int blocks = static_cast<int>(max_items < max_blocks ? max_items : max_blocks);
  kernel<<<blocks, Tile::kThreads, Tile::kSharedBytes, stream>>>(args);
  return cudaGetLastError();
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
gpuError_t launch_for(const AttentionGpuParams& params,
                      int min_queries,
                      int32_t* counter,
                      gpuStream_t stream) {
  return dispatch_head_dim(params.head_dim, [&]<int kHeadDim>(Constant<kHeadDim>) {
    if (params.kv_element == AttentionElement::kFloat8E4m3) {
      return launch_kernel<T, Float8E4m3, kHeadDim>(params, min_queries, counter, stream);
    }
    return launch_kernel<T, T, kHeadDim>(params, min_queries, counter, stream);
  });
}

gpuError_t launch_for_element(const AttentionGpuParams& params,
                              int min_queries,
                              int32_t* counter,
                              gpuStream_t stream) {
  return params.element == AttentionElement::kBfloat16
             ? launch_for<gpu_bfloat16>(params, min_queries, counter, stream)
             : launch_for<__half>(params, min_queries, counter, stream);
}

}  // namespace

bool supports_attention_prefill_sm90(const AttentionGpuParams& params) {
  const bool head_dim = params.head_dim == 64 || params.head_dim == 128 || params.head_dim == 256;
  const bool element =
      (params.element == AttentionElement::kFloat16 ||
       params.element == AttentionElement::kBfloat16) &&
      (params.kv_element == params.element || params.kv_element == AttentionElement::kFloat8E4m3);
  const bool block_size = params.block_size == 16 || params.block_size == 32 ||
                          params.block_size == 64 || params.block_size % 128 == 0;
  return head_dim && element && block_size && params.scale > 0 && params.num_kv_heads > 0 &&
         params.num_heads % params.num_kv_heads == 0 &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

size_t attention_prefill_sm90_workspace_size(const AttentionGpuParams& params) {
  return attention_copies_size(params);
}

gpuError_t launch_attention_prefill_sm90(const AttentionGpuParams& params,
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
