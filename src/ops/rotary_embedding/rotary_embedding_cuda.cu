#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/rotary_embedding/rotary_embedding_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::from_float;
using device::to_float;

constexpr int kThreads = 128;

// grid: tokens, slices of the pairs of all heads.
template <typename T>
__global__ void rotary_embedding_kernel(RotaryEmbeddingArgs args) {
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const int64_t token = blockIdx.x;
  const auto half = static_cast<uint32_t>(args.rotary_dim / 2);
  const int64_t position = args.positions[token];
  if (position < 0 || position >= args.max_position) gpu_trap();
  const float* cosines = args.cos_sin + position * args.cos_sin_stride;
  const float* sines = cosines + half;
  const auto query_pairs = static_cast<uint32_t>(args.heads[0].num_heads) * half;
  const uint32_t num_pairs = query_pairs + static_cast<uint32_t>(args.heads[1].num_heads) * half;
  for (uint32_t pair = blockIdx.y * kThreads + threadIdx.x; pair < num_pairs;
       pair += gridDim.y * kThreads) {
    const bool is_key = pair >= query_pairs;
    const RotaryEmbeddingArgs::Heads& heads = args.heads[is_key ? 1 : 0];
    const uint32_t index = is_key ? pair - query_pairs : pair;
    const uint32_t head = index / half, i = index % half;
    T* x = static_cast<T*>(heads.data) + token * heads.token_stride + head * heads.head_stride;
    T* first = x + (args.interleaved ? 2 * i : i);
    T* second = x + (args.interleaved ? 2 * i + 1 : i + half);
    const float a = to_float(gpu_load_from_l2(first)), b = to_float(gpu_load_from_l2(second));
    *first = from_float<T>(a * cosines[i] - b * sines[i]);
    *second = from_float<T>(b * cosines[i] + a * sines[i]);
  }
}

// Few tokens have a thread for each pair, so that no load waits for another.
int64_t num_slices(const RotaryEmbeddingArgs& args, int64_t num_tokens) {
  constexpr int64_t kFewTokens = 64, kMostPairs = 4;  // of a thread
  const int64_t pairs = (args.heads[0].num_heads + args.heads[1].num_heads) * (args.rotary_dim / 2);
  const int64_t of_slice = kThreads * (num_tokens <= kFewTokens ? 1 : kMostPairs);
  return pairs <= of_slice ? 1 : (pairs + of_slice - 1) / of_slice;
}

}  // namespace

void rotary_embedding_cuda(const RotaryEmbeddingArgs& args, int64_t num_tokens, void* queue) {
  const dim3 grid(static_cast<unsigned>(num_tokens),
                  static_cast<unsigned>(num_slices(args, num_tokens)));
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    (void)device::launch(rotary_embedding_kernel<T>,
                         grid,
                         dim3(kThreads),
                         0,
                         static_cast<gpuStream_t>(queue),
                         num_tokens < device::kManyRows,
                         args);
  });
  check_gpu_launch("rotary_embedding");
}

}  // namespace atom::ops
