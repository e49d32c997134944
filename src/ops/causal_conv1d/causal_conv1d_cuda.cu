#include "ops/causal_conv1d/causal_conv1d_kernels.h"
#include "ops/device/dispatch.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;
// Of one sequence, by a block: a chunk's first tokens read what its neighbor reads as well.
constexpr int kTokensPerChunk = 32;

// Where a sequence's rows are, for one channel.
template <typename T>
struct Channel {
  __device__ Channel(const CausalConv1dArgs& args, int64_t sequence, int64_t channel)
      : start(args.batch.query_start[sequence]),
        num_queries(args.batch.query_start[sequence + 1] - start),
        slot(args.batch.state_slots[sequence]),
        has_history(args.batch.seq_lens[sequence] > num_queries),
        x(static_cast<const T*>(args.x) + start * args.x_stride + channel),
        x_stride(args.x_stride),
        state_stride(args.num_channels),
        history(args.kernel_size - 1) {
    if (slot >= args.batch.num_slots) gpu_trap();
    if (slot >= 0) {
      state = static_cast<T*>(args.state) + slot * history * args.num_channels + channel;
    }
  }

  // Input t of this step; negative ones are the state's.
  __device__ T input(int64_t t) const {
    if (t >= 0) return x[t * x_stride];
    return has_history ? state[(history + t) * state_stride] : device::from_float<T>(0.0f);
  }

  int64_t start, num_queries, slot;
  bool has_history;
  const T* x;
  T* state = nullptr;
  int64_t x_stride, state_stride, history;
};

// grid: chunks of tokens, channels, sequences. A thread per channel.
template <typename T>
__global__ void convolve_kernel(CausalConv1dArgs args) {
  const int64_t channel = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (channel >= args.num_channels) return;
  const Channel<T> at(args, blockIdx.z, channel);
  T* out = static_cast<T*>(args.out) + at.start * args.out_stride + channel;
  float weight[kConvMaxKernelSize];
#pragma unroll
  for (int j = 0; j < kConvMaxKernelSize; ++j) {
    weight[j] = j < args.kernel_size ? args.weight[j * args.num_channels + channel] : 0.0f;
  }
  for (int64_t first = int64_t{blockIdx.x} * kTokensPerChunk; first < at.num_queries;
       first += int64_t{gridDim.x} * kTokensPerChunk) {
    const int64_t end = min(first + kTokensPerChunk, at.num_queries);
    for (int64_t t = first; t < end; ++t) {
      if (at.slot < 0) {
        out[t * args.out_stride] = device::from_float<T>(0.0f);
        continue;
      }
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kConvMaxKernelSize; ++j) {
        if (j >= args.kernel_size) break;
        sum = fmaf(weight[j], device::to_float(at.input(t - at.history + j)), sum);
      }
      out[t * args.out_stride] = device::from_float<T>(sum / (1.0f + expf(-sum)));
    }
  }
}

// After all outputs are there. grid: channels, sequences.
template <typename T>
__global__ void keep_inputs_kernel(CausalConv1dArgs args) {
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= args.num_channels) return;
  const Channel<T> at(args, blockIdx.y, channel);
  if (at.slot < 0 || at.num_queries == 0) return;
  // The slot in which the sequence began may be one that a token's inputs go to.
  T before[kConvMaxKernelSize - 1];
  for (int64_t j = 0; j < at.history; ++j) before[j] = at.input(j - at.history);
  const auto keep_behind = [&](int64_t token, int64_t slot) {
    if (slot >= args.batch.num_slots) gpu_trap();
    T* kept = static_cast<T*>(args.state) + slot * at.history * args.num_channels + channel;
    for (int64_t j = 0; j < at.history; ++j) {
      const int64_t t = token + 1 - at.history + j;
      kept[j * at.state_stride] = t >= 0 ? at.input(t) : before[at.history + t];
    }
  };
  const int32_t* kept = args.batch.token_slots;
  if (kept == nullptr) return keep_behind(at.num_queries - 1, at.slot);
  int64_t first = at.num_queries;
  while (first > 0 && kept[at.start + first - 1] >= 0) --first;
  for (int64_t t = first; t < at.num_queries; ++t) keep_behind(t, kept[at.start + t]);
}

}  // namespace

void causal_conv1d_cuda(const CausalConv1dArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  const unsigned blocks = static_cast<unsigned>((args.num_channels + kThreads - 1) / kThreads);
  const unsigned sequences = static_cast<unsigned>(args.batch.num_sequences);
  // The lengths are in the device's memory: as many chunks as the longest sequence may have, or as
  // keep the device busy.
  constexpr int64_t kMostChunks = 64;
  const int64_t most = (args.batch.num_tokens + kTokensPerChunk - 1) / kTokensPerChunk;
  const unsigned chunks = static_cast<unsigned>(most < kMostChunks ? most : kMostChunks);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    convolve_kernel<T><<<dim3(chunks, blocks, sequences), kThreads, 0, stream>>>(args);
    keep_inputs_kernel<T><<<dim3(blocks, sequences), kThreads, 0, stream>>>(args);
  });
  check_gpu_launch("causal_conv1d");
}

}  // namespace atom::ops
