#include "ops/device/dispatch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/indexer_norm_rope_cache/indexer_norm_rope_cache_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

// grid: tokens, heads of queries and then the key.
template <typename T>
__global__ void indexer_norm_rope_cache_kernel(IndexerNormRopeCacheArgs args) {
  __shared__ float x[kIndexerMaxHeadDim];
  __shared__ float scratch[device::kWarpSize];
  const int64_t token = blockIdx.x, head = blockIdx.y, size = args.head_dim;
  const bool is_key = head == args.num_heads;
  const int64_t slot = is_key ? args.slots[token] : 0;
  if (slot == -1) return;
  if (slot < 0 || slot >= args.num_slots) gpu_trap();
  const int64_t position = args.positions[token];
  if (position < 0 || position >= args.max_position) gpu_trap();
  T* q = static_cast<T*>(args.q) + token * args.q_stride + head * size;
  const T* from = is_key ? static_cast<const T*>(args.k) + token * args.k_stride : q;
  T* to = is_key ? static_cast<T*>(args.key_cache) + slot * size : q;
  const float* weight = is_key ? args.k_weight : args.q_weight;
  const float* bias = is_key ? args.k_bias : nullptr;

  float sum = 0;
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    x[i] = device::to_float(from[i]);
    sum += x[i];
  }
  if (weight != nullptr) {
    float mean = 0;
    if (bias != nullptr) {
      mean = device::reduce_block(sum, scratch, device::Sum{}) / static_cast<float>(size);
      __syncthreads();
    }
    float squares = 0;
    for (int64_t i = threadIdx.x; i < size; i += kThreads) {
      squares = fmaf(x[i] - mean, x[i] - mean, squares);
    }
    squares = device::reduce_block(squares, scratch, device::Sum{});
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(size) + args.eps);
    for (int64_t i = threadIdx.x; i < size; i += kThreads) {
      x[i] = (x[i] - mean) * scale * weight[i] + (bias != nullptr ? bias[i] : 0.0f);
    }
  }
  __syncthreads();
  const int64_t half = args.rotary_dim / 2;
  const float* cosines = args.cos_sin + position * args.rotary_dim;
  for (int64_t i = threadIdx.x; i < half; i += kThreads) {
    float& first = x[args.interleaved ? 2 * i : i];
    float& second = x[args.interleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second, c = cosines[i], s = cosines[half + i];
    first = a * c - b * s;
    second = b * c + a * s;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < size; i += kThreads) to[i] = device::from_float<T>(x[i]);
}

}  // namespace

void indexer_norm_rope_cache_cuda(const IndexerNormRopeCacheArgs& args, void* queue) {
  const dim3 grid(static_cast<unsigned>(args.num_tokens),
                  static_cast<unsigned>(args.num_heads + 1));
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    indexer_norm_rope_cache_kernel<T><<<grid, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("indexer_norm_rope_cache");
}

}  // namespace atom::ops
