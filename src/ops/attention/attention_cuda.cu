// Attention on any GPU, plain: a block per token and query head. Each warp takes every fourth key,
// by its position, so that a query's result does not depend on the rest of the batch.
#include "ops/attention/attention_cuda.h"
#include "ops/device/dispatch.cuh"
#include "ops/device/reductions.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::from_float;
using device::kWarpSize;
using device::to_float;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;

// The sequence whose queries hold `token`, or -1 when none does.
__device__ int64_t sequence_of(const int32_t* query_start, int64_t num_sequences, int64_t token) {
  int64_t low = 0, high = num_sequences;  // query_start[low] <= token < query_start[high]
  if (num_sequences == 0 || token < query_start[0] || token >= query_start[num_sequences]) {
    return -1;
  }
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (query_start[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// kPerLane: elements of a head that a lane holds. KV: of the cache.
template <typename T, typename KV, int kPerLane>
__global__ void attention_kernel(AttentionArgs args) {
  __shared__ float largest_of[kWarps], sum_of[kWarps];
  __shared__ float partial[kWarps][kPerLane * kWarpSize];
  const int64_t token = blockIdx.x, head = blockIdx.y;
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int64_t size = args.head_dim;
  T* out = static_cast<T*>(args.out) + token * args.out_token_stride + head * args.out_head_stride;
  const int64_t sequence = sequence_of(args.query_start, args.num_sequences, token);
  if (sequence < 0) return;
  const int64_t seq_len = args.seq_lens[sequence];
  const int64_t position = seq_len - (args.query_start[sequence + 1] - token);
  if (position < 0) {  // a row of padding
    for (int64_t d = threadIdx.x; d < size; d += kThreads) out[d] = from_float<T>(0);
    return;
  }
  const T* q_row =
      static_cast<const T*>(args.q) + token * args.q_token_stride + head * args.q_head_stride;
  float q[kPerLane], sum_v[kPerLane];
  for (int i = 0; i < kPerLane; ++i) {
    const int64_t d = lane + i * kWarpSize;
    q[i] = d < size ? to_float(q_row[d]) : 0.0f;
    sum_v[i] = 0;
  }
  const int64_t kv_head = head / (args.num_heads / args.num_kv_heads);
  const int32_t* table = args.block_tables + sequence * args.block_table_stride;
  const int64_t first = args.sliding_window == 0 || position < args.sliding_window
                            ? 0
                            : position - args.sliding_window + 1;
  const float scale = args.scale * args.k_scale;
  float largest = -INFINITY, sum = 0;
  for (int64_t key = first / kWarps * kWarps + warp; key <= position; key += kWarps) {
    if (key < first) continue;
    const int64_t block = table[key / args.block_size];
    const int64_t slot = block * args.block_size + key % args.block_size;
    const int64_t offset = (slot * args.num_kv_heads + kv_head) * size;
    const KV* k = static_cast<const KV*>(args.k_cache) + offset;
    const KV* v = static_cast<const KV*>(args.v_cache) + offset;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int64_t d = lane + i * kWarpSize;
      if (d < size) dot += q[i] * to_float(k[d]);
    }
    const float score = device::reduce_lanes(dot, kWarpSize, device::Sum{}) * scale;
    const float now_largest = fmaxf(largest, score);
    const float keep = expf(largest - now_largest), weight = expf(score - now_largest);
    largest = now_largest;
    sum = sum * keep + weight;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int64_t d = lane + i * kWarpSize;
      if (d < size) sum_v[i] = sum_v[i] * keep + weight * to_float(v[d]);
    }
  }
  if (lane == 0) {
    largest_of[warp] = largest;
    sum_of[warp] = sum;
  }
  for (int i = 0; i < kPerLane; ++i) partial[warp][lane + i * kWarpSize] = sum_v[i];
  __syncthreads();

  const float sink = args.sinks != nullptr ? args.sinks[head] : -INFINITY;
  float all_largest = sink;
  for (int w = 0; w < kWarps; ++w) all_largest = fmaxf(all_largest, largest_of[w]);
  float total = args.sinks != nullptr ? expf(sink - all_largest) : 0.0f;
  float share[kWarps];
  for (int w = 0; w < kWarps; ++w) {
    // A warp without keys has -inf and no share.
    share[w] = sum_of[w] > 0 ? expf(largest_of[w] - all_largest) : 0.0f;
    total += share[w] * sum_of[w];
  }
  for (int64_t d = threadIdx.x; d < size; d += kThreads) {
    float value = 0;
    for (int w = 0; w < kWarps; ++w) value += share[w] * partial[w][d];
    out[d] = from_float<T>(value * args.v_scale / total);
  }
}

template <typename T, typename KV>
void launch(const AttentionArgs& args, dim3 grid, gpuStream_t stream) {
  if (args.head_dim <= 2 * kWarpSize) {
    attention_kernel<T, KV, 2><<<grid, kThreads, 0, stream>>>(args);
  } else if (args.head_dim <= 4 * kWarpSize) {
    attention_kernel<T, KV, 4><<<grid, kThreads, 0, stream>>>(args);
  } else if (args.head_dim <= 8 * kWarpSize) {
    attention_kernel<T, KV, 8><<<grid, kThreads, 0, stream>>>(args);
  } else {
    attention_kernel<T, KV, 16><<<grid, kThreads, 0, stream>>>(args);
  }
}

}  // namespace

void attention_cuda(const AttentionArgs& args, void* queue) {
  const dim3 grid(static_cast<unsigned>(args.num_tokens), static_cast<unsigned>(args.num_heads));
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    const auto stream = static_cast<gpuStream_t>(queue);
    if (args.float8_cache) {
      launch<T, device::Float8>(args, grid, stream);
    } else {
      launch<T, T>(args, grid, stream);
    }
  });
  check_gpu_launch("attention");
}

}  // namespace atom::ops
