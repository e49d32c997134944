#include "ops/device/dispatch.cuh"
#include "ops/device/paged_row.cuh"
#include "ops/device/reductions.cuh"
#include "ops/sparse_attention/sparse_attention_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / device::kWarpSize;
constexpr int kTileKeys = kThreads;
constexpr int kMostPerThread = kSparseMaxHeadDim / kThreads;

// grid: tokens, query heads. A warp scores a key; then a thread sums some of the dimensions over
// the tile's values.
template <typename T, typename C>
__global__ void sparse_attention_kernel(SparseAttentionArgs args) {
  __shared__ float q[kSparseMaxHeadDim];
  __shared__ float weights[kTileKeys];
  __shared__ int64_t offsets[kTileKeys];  // of the tile's rows in the cache, -1: none
  __shared__ float scratch[device::kWarpSize];
  const int64_t token = blockIdx.x, head = blockIdx.y, size = args.head_dim;
  const int64_t kv_head = head / (args.num_heads / args.num_kv_heads);
  const int warp = threadIdx.x / device::kWarpSize, lane = threadIdx.x % device::kWarpSize;
  const PagedRow row = device::find_row(args.batch, token);
  const T* query =
      static_cast<const T*>(args.q) + token * args.q_strides[0] + head * args.q_strides[1];
  for (int64_t d = threadIdx.x; d < size; d += kThreads) q[d] = device::to_float(query[d]);
  float sums[kMostPerThread] = {};
  float largest = -3e38f, total = 0;
  for (int64_t first = 0; first < args.top_k; first += kTileKeys) {
    const int64_t i = first + threadIdx.x;
    const int64_t position = i < args.top_k ? args.indices[token * args.top_k + i] : -1;
    if (position > row.position || position < -1) gpu_trap();
    offsets[threadIdx.x] =
        position < 0
            ? -1
            : (device::slot_of(args.batch, row, position) * args.num_kv_heads + kv_head) * size;
    __syncthreads();
    if (offsets[0] < 0) break;
    for (int key = warp; key < kTileKeys; key += kWarps) {
      float product = 0;
      if (offsets[key] >= 0) {
        const C* k = static_cast<const C*>(args.k_cache) + offsets[key];
        for (int64_t d = lane; d < size; d += device::kWarpSize) {
          product = fmaf(q[d], device::to_float(k[d]), product);
        }
      }
      product = device::reduce_lanes(product, device::kWarpSize, device::Sum{});
      if (lane == 0) weights[key] = offsets[key] >= 0 ? product * args.scale : -3e38f;
    }
    __syncthreads();
    const float score = weights[threadIdx.x];
    // T{} of reduce_block would change a largest score below zero.
    float tile_largest = device::reduce_lanes(score, device::kWarpSize, device::Largest{});
    if (lane == 0) scratch[warp] = tile_largest;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) tile_largest = fmaxf(tile_largest, scratch[w]);
    const float now_largest = fmaxf(largest, tile_largest);
    const float shrink = expf(largest - now_largest);
    const float weight = offsets[threadIdx.x] >= 0 ? expf(score - now_largest) : 0.0f;
    __syncthreads();
    weights[threadIdx.x] = weight;
    const float tile_total = device::reduce_block(weight, scratch, device::Sum{});
    total = total * shrink + tile_total;
    largest = now_largest;
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kMostPerThread; ++n) {
      const int64_t d = threadIdx.x + int64_t{n} * kThreads;
      if (d >= size) break;
      float sum = sums[n] * shrink;
      for (int key = 0; key < kTileKeys && offsets[key] >= 0; ++key) {
        const C* v = static_cast<const C*>(args.v_cache) + offsets[key];
        sum = fmaf(weights[key], device::to_float(v[d]), sum);
      }
      sums[n] = sum;
    }
    __syncthreads();
  }
  T* out = static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1];
  const float factor = total == 0 ? 0.0f : args.v_scale / total;
#pragma unroll
  for (int n = 0; n < kMostPerThread; ++n) {
    const int64_t d = threadIdx.x + int64_t{n} * kThreads;
    if (d < size) out[d] = device::from_float<T>(sums[n] * factor);
  }
}

}  // namespace

void sparse_attention_cuda(const SparseAttentionArgs& args, void* queue) {
  const dim3 grid(static_cast<unsigned>(args.batch.num_tokens),
                  static_cast<unsigned>(args.num_heads));
  const auto stream = static_cast<gpuStream_t>(queue);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    if (args.float8_cache) {
      sparse_attention_kernel<T, device::Float8><<<grid, kThreads, 0, stream>>>(args);
    } else {
      sparse_attention_kernel<T, T><<<grid, kThreads, 0, stream>>>(args);
    }
  });
  check_gpu_launch("sparse_attention");
}

}  // namespace atom::ops
