// Inside the Hopper prefill attention: what its kernels begin with, and their launches.
#pragma once

#include "ops/attention/prefill/producer_sm90.cuh"
#include "ops/device/tensor_map.cuh"

namespace atom::ops::attention_device {

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
  device::publish_barriers();
}

template <typename KV, int kHeadDim>
__device__ void find_items(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers) {
  ItemFinder<KV, kHeadDim> finder(args, buffers);
  while (finder.put_next().sequence >= 0) {
  }
}

template <int kRank>
bool encode_map(CUtensorMap* map,
                Element element,
                const void* data,
                const TensorMapShape<kRank>& shape) {
  const bool is_8bit = element == Element::kFloat8E4M3;
  const CUtensorMapDataType type = is_8bit ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : element == Element::kBFloat16
                                       ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode_tensor_map(map,
                           type,
                           data,
                           shape,
                           is_8bit ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

inline cuuint64_t size_of(int64_t value) {
  return static_cast<cuuint64_t>(value);
}

// A box is a panel of 64 rows of one head.
inline bool encode_queries(const AttentionArgs& params, CUtensorMap* map) {
  const TensorMapShape<3> shape = {
      {size_of(params.head_dim), size_of(params.num_heads), size_of(params.num_tokens)},
      {size_of(params.q_head_stride * 2), size_of(params.q_token_stride * 2)},
      {kPanelElements, 1, kGroupRows}};
  return encode_map(map, params.element, params.q, shape);
}

// A box is `box_tokens` rows of one head, of `head` elements: as they are with elements of 8 bits,
// with those of 16 in the order of the consumers' tiles.
inline bool encode_cache(const AttentionArgs& params,
                         const void* cache,
                         int64_t head,
                         int box_tokens,
                         CUtensorMap* map) {
  const int64_t slots = int64_t{params.num_blocks} * params.block_size;
  const int64_t slot = params.num_kv_heads * head;
  const auto box = static_cast<cuuint32_t>(box_tokens);
  if (params.float8_cache) {
    const TensorMapShape<3> shape = {{size_of(head), size_of(params.num_kv_heads), size_of(slots)},
                                     {size_of(head), size_of(slot)},
                                     {static_cast<cuuint32_t>(head), 1, box}};
    return encode_map(map, Element::kFloat8E4M3, cache, shape);
  }
  const auto panels = static_cast<cuuint32_t>(head / kPanelElements);
  const TensorMapShape<5> shape = {
      {kPanelElements, 8, panels, size_of(slots / 8), size_of(params.num_kv_heads)},
      {size_of(slot * 2), kPanelRowBytes, size_of(slot * 2 * 8), size_of(head * 2)},
      {kPanelElements, 8, panels, box / 8, 1}};
  return encode_map(map, params.element, cache, shape);
}

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

// With a kernel's blocks for all items, or as many as the device has room for.
template <typename KV, int kHeadDim>
gpuError_t launch_prefill(void (*kernel)(PrefillArgs),
                          const AttentionArgs& params,
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
      !encode_cache(params, params.k_cache, kHeadDim, args.box_tokens, &args.keys) ||
      !encode_cache(params, params.v_cache, Tile::kValueDim, args.box_tokens, &args.values)) {
    return cudaErrorInvalidValue;
  }
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

}  // namespace atom::ops::attention_device
