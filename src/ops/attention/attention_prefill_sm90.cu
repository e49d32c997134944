// Persistent blocks of one loading and two computing warpgroups, the latter with 64 queries of one
// head each. A warpgroup computes the scores of the next tile and adds the values of the last one
// while it takes the softmax, and the two take turns at the matrix units (the schedule of
// FlashAttention-3, Shah et al. 2024). Tiles of keys begin at multiples of their size and come last
// first; one that a query does not see leaves it as it is, bit for bit.
#include "ops/attention/attention_prefill_sm90.h"

#include "ops/attention/attention_prefill_sm90.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

// Where in the cache this lane's part of a tile begins, or -1: nothing of it is to be loaded.
template <typename Tile>
__device__ int first_slot(const PrefillArgs& args, const Item& item, int tile) {
  const int part = (threadIdx.x & 31) * args.box_tokens;
  const int key = tile * Tile::kKeys + part;
  if (part >= Tile::kKeys || key >= item.seq_len || key + args.box_tokens <= item.first_key) {
    return -1;
  }
  const int page = key / args.params.block_size;
  const int32_t block =
      args.params.block_tables[item.sequence * args.params.block_table_stride + page];
  return block * args.params.block_size + (key - page * args.params.block_size);
}

// By one warp. `phase` is of queries_empty.
template <typename KV, int kHeadDim>
__device__ void load_queries(const PrefillArgs& args,
                             const Buffers<KV, kHeadDim>& buffers,
                             const Item& item,
                             uint32_t phase) {
  using Tile = PrefillTile<KV, kHeadDim>;
  wait_for(buffers.queries_empty(), phase);
  if ((threadIdx.x & 31) == 0) {
    arrive_expecting(buffers.queries_full(), Tile::kQueryBytes);
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      copy_box(buffers.queries() + panel * Tile::kQueryPanelBytes,
               &args.queries,
               panel * kPanelElements,
               item.head,
               item.first_token,
               buffers.queries_full());
    }
  }
}

__device__ int kv_head_of(const PrefillArgs& args, const Item& item) {
  return item.head / (args.params.num_heads / args.params.num_kv_heads);
}

// Of 16-bit caches: one warp, whose copies go straight to the consumers' tiles.
template <typename KV, int kHeadDim>
class Producer {
 public:
  using Tile = PrefillTile<KV, kHeadDim>;

  __device__ Producer(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers)
      : args_(args), buffers_(buffers) {}

  __device__ void run() {
    ItemWalk<Tile::kKeys> walk;
    Item item;
    uint32_t phase = 1;
    while (walk.next(args_, item)) {
      const int kv_head = kv_head_of(args_, item);
      int slot = first_slot<Tile>(args_, item, item.last_tile);
      load_queries(args_, buffers_, item, phase);
      phase ^= 1;
      for (int tile = item.last_tile; tile >= item.first_tile; --tile) {
        const int next_slot = tile > item.first_tile ? first_slot<Tile>(args_, item, tile - 1) : -1;
        load_tile(&args_.keys, kv_head, slot, keys_, buffers_.keys_full(0), buffers_.keys(0));
        load_tile(
            &args_.values, kv_head, slot, values_, buffers_.values_full(0), buffers_.values(0));
        slot = next_slot;
      }
    }
  }

 private:
  // `full` and `target` are those of stage 0.
  __device__ void load_tile(const CUtensorMap* map,
                            int kv_head,
                            int slot,
                            RingPosition<kStages>& ring,
                            uint32_t full,
                            uint32_t target) const {
    const int lane = threadIdx.x & 31;
    const int num_boxes = __popc(__ballot_sync(kAllLanes, slot >= 0));
    const int box_bytes = args_.box_tokens * kPanelRowBytes;
    full += ring.stage * 8;
    target += ring.stage * Tile::kBytes;
    wait_for(full + kStages * 8, ring.parity ^ 1);  // empty
    if (lane == 0) {
      arrive_expecting(full, num_boxes * box_bytes * Tile::kPanels);
    }
    __syncwarp();
    if (slot >= 0) {
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        copy_box(target + panel * Tile::kPanelBytes + lane * box_bytes,
                 map,
                 panel * kPanelElements,
                 kv_head,
                 slot,
                 full);
      }
    }
    ring.advance();
  }

  const PrefillArgs& args_;
  const Buffers<KV, kHeadDim>& buffers_;
  RingPosition<kStages> keys_;
  RingPosition<kStages> values_;
};

// Of 8-bit caches: a warpgroup. Its first warp has tiles copied as they are, ahead of their use;
// all expand them into the consumers' tiles. Steps are the keys and values of each tile in turn.
template <typename T, typename KV, int kHeadDim>
class ExpandingProducer {
 public:
  using Tile = PrefillTile<KV, kHeadDim>;

  __device__ ExpandingProducer(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers)
      : args_(args), buffers_(buffers) {}

  __device__ void run() {
    const bool is_loader = threadIdx.x < 32;
    if (is_loader) {
      start_item();
      for (int i = 0; i < Tile::kRawStages - 1; ++i) {
        load_raw();
      }
    }
    ItemWalk<Tile::kKeys> walk;
    Item item;
    uint32_t phase = 1;
    while (walk.next(args_, item)) {
      if (is_loader) {
        load_queries(args_, buffers_, item, phase);
        phase ^= 1;
      }
      for (int tile = item.last_tile; tile >= item.first_tile; --tile) {
        expand_step(keys_, buffers_.keys_full(0), buffers_.keys(0), is_loader);
        expand_step(values_, buffers_.values_full(0), buffers_.values(0), is_loader);
      }
    }
  }

 private:
  __device__ void start_item() {
    loads_end_ = !load_walk_.next(args_, load_item_);
    load_tile_ = load_item_.last_tile;
    loads_values_ = false;
    if (!loads_end_) {
      load_slot_ = first_slot<Tile>(args_, load_item_, load_tile_);
    }
  }

  // Begins the copy of one more step, if there is one. By the first warp.
  __device__ void load_raw() {
    if (loads_end_) {
      return;
    }
    const int lane = threadIdx.x & 31;
    const int num_boxes = __popc(__ballot_sync(kAllLanes, load_slot_ >= 0));
    const int box_bytes = args_.box_tokens * kHeadDim;
    const uint32_t full = buffers_.raw_full(loads_.stage);
    if (lane == 0) {
      arrive_expecting(full, num_boxes * box_bytes);
    }
    __syncwarp();
    if (load_slot_ >= 0) {
      copy_box(buffers_.raw(loads_.stage) + lane * box_bytes,
               loads_values_ ? &args_.values : &args_.keys,
               0,
               kv_head_of(args_, load_item_),
               load_slot_,
               full);
    }
    loads_.advance();
    loads_values_ = !loads_values_;
    if (loads_values_) {
      return;
    }
    if (load_tile_ == load_item_.first_tile) {
      start_item();
    } else {
      --load_tile_;
      load_slot_ = first_slot<Tile>(args_, load_item_, load_tile_);
    }
  }

  // `full` and `target` are those of stage 0.
  __device__ void expand_step(RingPosition<kStages>& ring,
                              uint32_t full,
                              uint32_t target,
                              bool is_loader) {
    if (is_loader) {
      load_raw();  // into the stage of the step before
    }
    full += ring.stage * 8;
    wait_for(buffers_.raw_full(raw_.stage), raw_.parity);
    wait_for(full + kStages * 8, ring.parity ^ 1);  // empty
    expand(buffers_.raw(raw_.stage), target + ring.stage * Tile::kBytes);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    arrive(full);
    named_barrier_wait<kGroupThreads>(kProducerBarrier);
    raw_.advance();
    ring.advance();
  }

  // Rows that were not loaded hold anything: the consumers hide them.
  static __device__ void expand(uint32_t raw, uint32_t target) {
    constexpr int kChunks = kHeadDim / 16;
#pragma unroll 4
    for (int i = threadIdx.x; i < Tile::kKeys * kChunks; i += kGroupThreads) {
      const int key = i / kChunks;
      const int chunk = i % kChunks;
      uint32_t words[4];
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "r"(raw + i * 16)
                   : "memory");
      const uint32_t row = target + chunk / 4 * Tile::kPanelBytes + key * kPanelRowBytes;
      // Neighbours that write to different panels begin with different halves, so that they do not
      // meet in one bank.
      const int swap = (chunk / 4) & 1;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int half = j ^ swap;
        const uint32_t low = half == 0 ? words[0] : words[2];
        const uint32_t high = half == 0 ? words[1] : words[3];
        const uint32_t place = row + (((chunk % 4 * 2 + half) ^ (key & 7)) << 4);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(place),
                     "r"(expand_to<T>(low & 0xffff)),
                     "r"(expand_to<T>(low >> 16)),
                     "r"(expand_to<T>(high & 0xffff)),
                     "r"(expand_to<T>(high >> 16))
                     : "memory");
      }
    }
  }

  const PrefillArgs& args_;
  const Buffers<KV, kHeadDim>& buffers_;
  RingPosition<kStages> keys_;
  RingPosition<kStages> values_;
  RingPosition<Tile::kRawStages> raw_;
  // Of the first warp: the next step to copy.
  RingPosition<Tile::kRawStages> loads_;
  ItemWalk<Tile::kKeys> load_walk_;
  Item load_item_;
  int load_tile_;
  int load_slot_ = -1;
  bool loads_values_;
  bool loads_end_;
};

template <typename KV, int kHeadDim>
__device__ void init_barriers(const Buffers<KV, kHeadDim>& buffers) {
  using Tile = PrefillTile<KV, kHeadDim>;
  const int num_producers = Tile::kIs8Bit ? kGroupThreads : 1;
  init_barrier(buffers.queries_full(), 1);
  init_barrier(buffers.queries_empty(), kConsumerWarps);
  for (int stage = 0; stage < kStages; ++stage) {
    init_barrier(buffers.keys_full(stage), num_producers);
    init_barrier(buffers.values_full(stage), num_producers);
    init_barrier(buffers.keys_empty(stage), kConsumerWarps);
    init_barrier(buffers.values_empty(stage), kConsumerWarps);
  }
  for (int stage = 0; stage < Tile::kRawStages; ++stage) {
    init_barrier(buffers.raw_full(stage), 1);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

template <typename T, typename KV, int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    attention_prefill_kernel(const __grid_constant__ PrefillArgs args) {
  using Tile = PrefillTile<KV, kHeadDim>;
  // They add up to three times the 168 of the launch bounds.
  constexpr int kProducerRegisters = Tile::kIs8Bit ? 72 : 40;
  constexpr int kConsumerRegisters = Tile::kIs8Bit ? 216 : 232;
  extern __shared__ char shared[];
  __shared__ __align__(8) uint64_t barriers[Tile::kNumBarriers];
  Buffers<KV, kHeadDim> buffers;
  buffers.base = (shared_address(shared) + 1023) & ~1023u;
  buffers.barriers = shared_address(barriers);
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

bool encode_maps(const AttentionGpuParams& params, PrefillArgs& args) {
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
                    kRows) &&
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
gpuError_t launch_kernel(const AttentionGpuParams& params, int min_queries, gpuStream_t stream) {
  using Tile = PrefillTile<KV, kHeadDim>;
  PrefillArgs args;
  args.params = params;
  args.min_queries = min_queries;
  args.box_tokens = params.block_size < Tile::kKeys ? params.block_size : Tile::kKeys;
  const int64_t max_items =
      (int64_t{params.num_tokens} / kRows + params.num_sequences) * params.num_heads;
  if (max_items == 0) {
    return cudaSuccess;
  }
  if (!encode_maps(params, args)) {
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
  kernel<<<blocks, kThreads, Tile::kSharedBytes, stream>>>(args);
  return cudaGetLastError();
}

template <typename T, typename KV>
gpuError_t launch_for_head_dim(const AttentionGpuParams& params,
                               int min_queries,
                               gpuStream_t stream) {
  switch (params.head_dim) {
    case 64:
      return launch_kernel<T, KV, 64>(params, min_queries, stream);
    case 128:
      return launch_kernel<T, KV, 128>(params, min_queries, stream);
    case 256:
      return launch_kernel<T, KV, 256>(params, min_queries, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename T>
gpuError_t launch_for_cache(const AttentionGpuParams& params, int min_queries, gpuStream_t stream) {
  return params.kv_element == AttentionElement::kFloat8E4m3
             ? launch_for_head_dim<T, Float8E4m3>(params, min_queries, stream)
             : launch_for_head_dim<T, T>(params, min_queries, stream);
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
                                         gpuStream_t stream) {
  return params.element == AttentionElement::kBfloat16
             ? launch_for_cache<gpu_bfloat16>(params, min_queries, stream)
             : launch_for_cache<__half>(params, min_queries, stream);
}

}  // namespace atom::ops
