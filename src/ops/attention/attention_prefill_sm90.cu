// Persistent blocks of a warpgroup that loads and two or three that compute, the latter with 64
// queries of one head each. A warpgroup hands the scores of the next tile and the values of the
// last one to the matrix units together, and while it takes the softmax the others have them in
// turn (after FlashAttention-3, Shah et al. 2024). Tiles of keys begin at multiples of their size
// and come last first; one that a query does not see leaves it as it is, bit for bit.
#include "ops/attention/attention_prefill_sm90.h"

#include "ops/attention/attention_prefill_consumer_sm90.cuh"
#include "ops/attention/attention_prefill_producer_sm90.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

template <typename KV, int kHeadDim>
__device__ void init_barriers(const Buffers<KV, kHeadDim>& buffers) {
  using Tile = PrefillTile<KV, kHeadDim>;
  const int num_producers = Tile::kIs8Bit ? kGroupThreads : 1;
  init_barrier(buffers.queries_full(), 1);
  init_barrier(buffers.queries_empty(), Tile::kConsumerWarps);
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
      Producer<KV, kHeadDim>(args, buffers).run();
    } else if (threadIdx.x < 64) {
      find_items(args, buffers);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Consumer<T, KV, kHeadDim>(args, buffers).run();
  }
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// The driver's function, without linking the driver; null where there is none.
EncodeTiled find_encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
  const bool found = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
  return found ? reinterpret_cast<EncodeTiled>(function) : nullptr;
}

// Map of [tokens, heads, head_dim]; a box is `box_tokens` rows of one head, of a panel where the
// elements have 16 bits.
bool encode_map(CUtensorMap* map,
                AttentionElement element,
                const void* data,
                const int64_t (&sizes)[3],
                int64_t token_stride,
                int64_t head_stride,
                int box_tokens) {
  static const EncodeTiled encode = find_encode_tiled();
  if (encode == nullptr) {
    return false;
  }
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(sizes[2]),
                              static_cast<cuuint64_t>(sizes[1]),
                              static_cast<cuuint64_t>(sizes[0])};
  const bool is_8bit = element == AttentionElement::kFloat8E4m3;
  const int element_size = is_8bit ? 1 : 2;
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(head_stride * element_size),
                                 static_cast<cuuint64_t>(token_stride * element_size)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(is_8bit ? sizes[2] : kPanelElements),
                             1,
                             static_cast<cuuint32_t>(box_tokens)};
  const cuuint32_t element_strides[3] = {1, 1, 1};
  const CUtensorMapDataType type = is_8bit ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : element == AttentionElement::kBfloat16
                                       ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(map,
                type,
                3,
                const_cast<void*>(data),
                dims,
                strides,
                box,
                element_strides,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                is_8bit ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool encode_maps(const AttentionGpuParams& params, int query_rows, PrefillArgs& args) {
  const int64_t slots = int64_t{params.num_blocks} * params.block_size;
  const int64_t query_sizes[3] = {params.num_tokens, params.num_heads, params.head_dim};
  const int64_t cache_sizes[3] = {slots, params.num_kv_heads, params.head_dim};
  const int64_t slot_stride = int64_t{params.num_kv_heads} * params.head_dim;
  return encode_map(&args.queries,
                    params.element,
                    params.q,
                    query_sizes,
                    params.q_token_stride,
                    params.q_head_stride,
                    query_rows) &&
         encode_map(&args.keys,
                    params.kv_element,
                    params.k_cache,
                    cache_sizes,
                    slot_stride,
                    params.head_dim,
                    args.box_tokens) &&
         encode_map(&args.values,
                    params.kv_element,
                    params.v_cache,
                    cache_sizes,
                    slot_stride,
                    params.head_dim,
                    args.box_tokens);
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
  if (!encode_maps(params, Tile::kRows, args)) {
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

gpuError_t launch_attention_prefill_sm90(const AttentionGpuParams& params,
                                         int32_t min_queries,
                                         int32_t* counter,
                                         gpuStream_t stream) {
  return params.element == AttentionElement::kBfloat16
             ? launch_for<gpu_bfloat16>(params, min_queries, counter, stream)
             : launch_for<__half>(params, min_queries, counter, stream);
}

}  // namespace atom::ops
