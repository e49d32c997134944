// The blocks of prefill/prefill_sm90.cu with another consumer, which takes tiles in ascending
// order: see fixed/order.cuh.
#include "ops/attention/fixed/fixed_sm90.h"

#include "ops/attention/fixed/consumer_sm90.cuh"
#include "ops/attention/fixed/fixed_cuda.h"
#include "ops/attention/prefill/copies_cuda.h"
#include "ops/attention/prefill/launch_sm90.cuh"
#include "ops/attention/prefill/prefill_sm90.h"

namespace atom::ops {
namespace {

using namespace attention_device;

template <typename T, typename Out, int kHeadDim>
__global__ void __launch_bounds__(PrefillTile<T, kHeadDim>::kThreads, 1)
    attention_fixed_kernel(const __grid_constant__ PrefillArgs args) {
  using Tile = PrefillTile<T, kHeadDim>;
  // All together they have 504 or 512 for each thread of a warpgroup.
  constexpr int kProducerRegisters = Tile::kGroups == 3 ? 32 : 40;
  constexpr int kConsumerRegisters = Tile::kGroups == 3 ? 160 : 232;
  extern __shared__ char shared[];
  __shared__ __align__(8) uint64_t barriers[Tile::kNumBarriers];
  __shared__ Item items[Tile::kItems];
  Buffers<T, kHeadDim> buffers;
  buffers.base = (shared_address(shared) + 1023) & ~1023u;
  buffers.barriers = shared_address(barriers);
  buffers.items = items;
  if (threadIdx.x == 0) {
    init_barriers(buffers);
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (threadIdx.x < 32) {
      Producer<T, kHeadDim, true, true>(args, buffers).run();
    } else if (threadIdx.x < 64) {
      Producer<T, kHeadDim, false, true>(args, buffers).run();
    } else if (threadIdx.x < 96) {
      find_items(args, buffers);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    FixedConsumer<T, Out, kHeadDim>(args, buffers).run();
  }
}

// params.element is that of T; the results are of Out.
template <typename T, typename Out>
gpuError_t launch_for(const AttentionArgs& params,
                      int min_queries,
                      int32_t* counter,
                      gpuStream_t stream) {
  return params.head_dim == 64
             ? launch_prefill<T, 64>(
                   attention_fixed_kernel<T, Out, 64>, params, min_queries, counter, stream)
             : launch_prefill<T, 128>(
                   attention_fixed_kernel<T, Out, 128>, params, min_queries, counter, stream);
}

constexpr int kThreads = 256;

// bfloat16 as float16, [tokens, heads, head_dim] contiguous: eight elements a thread.
__global__ void __launch_bounds__(kThreads)
    convert_queries(const AttentionArgs params, uint4* queries) {
  const int vectors_per_head = params.head_dim / 8;
  const int64_t count = int64_t{params.num_tokens} * params.num_heads * vectors_per_head;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t row = i / vectors_per_head;
    const int64_t token = row / params.num_heads, head = row % params.num_heads;
    const auto* source = static_cast<const gpu_bfloat16*>(params.q) +
                         token * params.q_token_stride + head * params.q_head_stride;
    const uint4 bits = reinterpret_cast<const uint4*>(source)[i % vectors_per_head];
    queries[i] = {convert_pair<__half, gpu_bfloat16>(bits.x),
                  convert_pair<__half, gpu_bfloat16>(bits.y),
                  convert_pair<__half, gpu_bfloat16>(bits.z),
                  convert_pair<__half, gpu_bfloat16>(bits.w)};
  }
}

// With queries that are converted to the element that the fixed order takes with an 8-bit cache.
AttentionArgs in_float16(const AttentionArgs& params, const void* queries) {
  AttentionArgs converted = params;
  converted.element = Element::kFloat16;
  if (params.element == Element::kFloat16) return converted;
  converted.q = queries;
  converted.q_head_stride = params.head_dim;
  converted.q_token_stride = int64_t{params.num_heads} * params.head_dim;
  return converted;
}

size_t queries_size(const AttentionArgs& params) {
  if (!params.float8_cache || params.element == Element::kFloat16) return 0;
  return (size_t(params.num_tokens) * params.num_heads * params.head_dim * 2 + 127) / 128 * 128;
}

}  // namespace

bool supports_attention_fixed_sm90(const AttentionArgs& params) {
  const bool has_copies =
      !params.float8_cache || attention_copies_size(in_float16(params, params.q)) > 0;
  return supports_attention_prefill_sm90(params) && params.head_dim <= 128 && has_copies;
}

size_t attention_fixed_sm90_workspace_size(const AttentionArgs& params) {
  if (!params.float8_cache) return 0;
  return queries_size(params) + attention_copies_size(in_float16(params, params.q));
}

gpuError_t launch_attention_fixed_sm90(const AttentionArgs& params,
                                       int32_t min_queries,
                                       void* workspace,
                                       int32_t* counter,
                                       gpuStream_t stream) {
  const bool bfloat16 = params.element == Element::kBFloat16;
  if (!params.float8_cache) {
    return bfloat16 ? launch_for<gpu_bfloat16, gpu_bfloat16>(params, min_queries, counter, stream)
                    : launch_for<__half, __half>(params, min_queries, counter, stream);
  }
  const AttentionArgs converted = in_float16(params, workspace);
  if (bfloat16) {
    constexpr int kBlocks = 1024;
    convert_queries<<<kBlocks, kThreads, 0, stream>>>(params, static_cast<uint4*>(workspace));
  }
  AttentionCopies copies;
  gpuError_t error = launch_attention_copies(converted,
                                             min_queries,
                                             static_cast<char*>(workspace) + queries_size(params),
                                             attention_copies_size(converted),
                                             stream,
                                             copies);
  if (error == cudaSuccess) {
    error = bfloat16 ? launch_for<__half, gpu_bfloat16>(copies.copied, min_queries, counter, stream)
                     : launch_for<__half, __half>(copies.copied, min_queries, counter, stream);
  }
  if (error == cudaSuccess && copies.has_direct) {
    AttentionArgs direct = params;
    direct.seq_lens = copies.direct.seq_lens;
    error = launch_attention_fixed_cuda(direct, min_queries, nullptr, nullptr, stream);
  }
  return error;
}

}  // namespace atom::ops
