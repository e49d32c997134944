#include "ops/device/dispatch.cuh"
#include "ops/rotary_embedding/rotary_embedding_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::from_float;
using device::to_float;

constexpr int kThreads = 128;

// A block per token; its threads share the pairs of all heads.
template <typename T>
__global__ void rotary_embedding_kernel(RotaryEmbeddingArgs args) {
  const int64_t token = blockIdx.x;
  const int64_t half = args.rotary_dim / 2;
  const int64_t position = args.positions[token];
  if (position < 0 || position >= args.max_position) gpu_trap();
  const float* cosines = args.cos_sin + position * args.cos_sin_stride;
  const float* sines = cosines + half;
  const int64_t query_pairs = args.heads[0].num_heads * half;
  const int64_t num_pairs = query_pairs + args.heads[1].num_heads * half;
  for (int64_t pair = threadIdx.x; pair < num_pairs; pair += kThreads) {
    const bool is_key = pair >= query_pairs;
    const RotaryEmbeddingArgs::Heads& heads = args.heads[is_key ? 1 : 0];
    const int64_t index = is_key ? pair - query_pairs : pair;
    const int64_t head = index / half, i = index % half;
    T* x = static_cast<T*>(heads.data) + token * heads.token_stride + head * heads.head_stride;
    T* first = x + (args.interleaved ? 2 * i : i);
    T* second = x + (args.interleaved ? 2 * i + 1 : i + half);
    const float a = to_float(*first), b = to_float(*second);
    *first = from_float<T>(a * cosines[i] - b * sines[i]);
    *second = from_float<T>(b * cosines[i] + a * sines[i]);
  }
}

}  // namespace

void rotary_embedding_cuda(const RotaryEmbeddingArgs& args, int64_t num_tokens, void* queue) {
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    rotary_embedding_kernel<T>
        <<<static_cast<unsigned>(num_tokens), kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("rotary_embedding");
}

}  // namespace atom::ops
