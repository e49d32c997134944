// Latent attention on any GPU, plain: a block per token and query head.
#include "ops/device/dispatch.cuh"
#include "ops/device/paged_row.cuh"
#include "ops/device/reductions.cuh"
#include "ops/mla_attention/mla_attention_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / device::kWarpSize;
constexpr int kTileKeys = kThreads;
constexpr int kMostPerThread = kMlaMaxWidth / kThreads;

// Where the row of key `i` is in the cache, or -1 when there is none.
__device__ int64_t offset_of(const MlaAttentionArgs& args,
                             int64_t token,
                             const PagedRow& row,
                             int64_t i) {
  int64_t position = i <= row.position ? i : -1;
  if (args.indices != nullptr) {
    position = i < args.top_k ? args.indices[token * args.top_k + i] : -1;
    if (position > row.position || position < -1) gpu_trap();
  }
  return position < 0 ? -1 : device::slot_of(args.batch, row, position) * args.width;
}

// grid: tokens, query heads. A warp scores a key; then a thread sums some of the dimensions over
// the tile's latents.
template <typename T, typename C>
__global__ void mla_attention_kernel(MlaAttentionArgs args) {
  __shared__ float q[kMlaMaxWidth];
  __shared__ float weights[kTileKeys];
  __shared__ int64_t offsets[kTileKeys];
  __shared__ float scratch[device::kWarpSize];
  const int64_t token = blockIdx.x, head = blockIdx.y;
  const int warp = threadIdx.x / device::kWarpSize, lane = threadIdx.x % device::kWarpSize;
  const PagedRow row = device::find_row(args.batch, token);
  const T* latent = static_cast<const T*>(args.q_latent) + token * args.q_latent_strides[0] +
                    head * args.q_latent_strides[1];
  const T* rope = static_cast<const T*>(args.q_rope) + token * args.q_rope_strides[0] +
                  head * args.q_rope_strides[1];
  for (int64_t d = threadIdx.x; d < args.width; d += kThreads) {
    q[d] = device::to_float(d < args.rank ? latent[d] : rope[d - args.rank]);
  }
  const C* cache = static_cast<const C*>(args.cache);
  float sums[kMostPerThread] = {};
  float largest = -3e38f, total = 0;
  const int64_t most = args.indices == nullptr ? row.position + 1 : args.top_k;
  for (int64_t first = 0; first < most; first += kTileKeys) {
    offsets[threadIdx.x] = offset_of(args, token, row, first + threadIdx.x);
    __syncthreads();
    if (offsets[0] < 0) break;
    for (int key = warp; key < kTileKeys; key += kWarps) {
      float product = 0;
      if (offsets[key] >= 0) {
        for (int64_t d = lane; d < args.width; d += device::kWarpSize) {
          product = fmaf(q[d], device::to_float(cache[offsets[key] + d]), product);
        }
      }
      product = device::reduce_lanes(product, device::kWarpSize, device::Sum{});
      if (lane == 0) weights[key] = offsets[key] >= 0 ? product * args.scale : -3e38f;
    }
    __syncthreads();
    const float score = weights[threadIdx.x];
    float tile_largest = device::reduce_lanes(score, device::kWarpSize, device::Largest{});
    if (lane == 0) scratch[warp] = tile_largest;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) tile_largest = fmaxf(tile_largest, scratch[w]);
    const float now_largest = fmaxf(largest, tile_largest);
    const float shrink = expf(largest - now_largest);
    const float weight = offsets[threadIdx.x] >= 0 ? expf(score - now_largest) : 0.0f;
    __syncthreads();
    weights[threadIdx.x] = weight;
    total = total * shrink + device::reduce_block(weight, scratch, device::Sum{});
    largest = now_largest;
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kMostPerThread; ++n) {
      const int64_t d = threadIdx.x + int64_t{n} * kThreads;
      if (d >= args.rank) break;
      float sum = sums[n] * shrink;
      for (int key = 0; key < kTileKeys && offsets[key] >= 0; ++key) {
        sum = fmaf(weights[key], device::to_float(cache[offsets[key] + d]), sum);
      }
      sums[n] = sum;
    }
    __syncthreads();
  }
  T* out = static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1];
  const float factor = total == 0 ? 0.0f : 1.0f / total;
#pragma unroll
  for (int n = 0; n < kMostPerThread; ++n) {
    const int64_t d = threadIdx.x + int64_t{n} * kThreads;
    if (d < args.rank) out[d] = device::from_float<T>(sums[n] * factor);
  }
}

}  // namespace

void mla_attention_cuda(const MlaAttentionArgs& args, void* queue) {
  const dim3 grid(static_cast<unsigned>(args.batch.num_tokens),
                  static_cast<unsigned>(args.num_heads));
  const auto stream = static_cast<gpuStream_t>(queue);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    if (args.float8_cache) {
      mla_attention_kernel<T, device::Float8><<<grid, kThreads, 0, stream>>>(args);
    } else {
      mla_attention_kernel<T, T><<<grid, kThreads, 0, stream>>>(args);
    }
  });
  check_gpu_launch("mla_attention");
}

}  // namespace atom::ops
