#include "comm/device/collectives.h"

#include "comm/device/exchange.cuh"
#include "comm/device/kernels.h"
#include "comm/device/values.cuh"
#include "comm/device/vectors.cuh"

namespace atom {
namespace {

using namespace device_exchange;

constexpr int kThreads = 512;
// Vectors of 16 bytes that a thread reads at once: the way to another card is long.
constexpr int kAtOnce = 4;

template <typename T>
__device__ T* element_at(void* data, int64_t index) {
  return static_cast<T*>(data) + index;
}

// Elements [first, first + count) of all ranks' tensors, into the same of all of them, or into
// `part` if there is one.
template <typename T>
struct ReduceJob {
  void* const* wholes;  // [size]
  T* part;
  int size;
  int64_t first, count;
  ReduceOp op;

  __device__ bool has_vectors() const {
    uintptr_t bits = reinterpret_cast<uintptr_t>(part);
    for (int rank = 0; rank < size; ++rank) {
      bits |= reinterpret_cast<uintptr_t>(element_at<T>(wholes[rank], first));
    }
    return bits % sizeof(uint4) == 0;
  }

  __device__ const uint4* vectors_of(int rank) const {
    return reinterpret_cast<const uint4*>(element_at<T>(wholes[rank], first));
  }

  __device__ void load(int rank, int64_t at, int64_t end, uint4 (&bits)[kAtOnce]) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * kThreads < end) bits[i] = gpu_load_from_l2(vectors_of(rank) + at + i * kThreads);
    }
  }

  // All ranks' vectors from `at` on are on their way at once where there are two.
  __device__ void run_vectors() const {
    const auto [begin, end] = share_of(count / Sums<T>::kLength, blockIdx.x, gridDim.x);
    for (int64_t at = begin + threadIdx.x; at < end; at += kAtOnce * kThreads) {
      uint4 bits[kAtOnce], second[kAtOnce];
      load(0, at, end, bits);
      load(1, at, end, second);
      Sums<T> sums[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        sums[i].set(bits[i]);
        sums[i].add(op, second[i]);
      }
      for (int rank = 2; rank < size; ++rank) {
        load(rank, at, end, bits);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) sums[i].add(op, bits[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (at + i * kThreads < end) store(at + i * kThreads, sums[i].rounded());
      }
    }
  }

  __device__ void store(int64_t vector, const uint4& bits) const {
    if (part != nullptr) {
      reinterpret_cast<uint4*>(part)[vector] = bits;
      return;
    }
    for (int rank = 0; rank < size; ++rank) {
      reinterpret_cast<uint4*>(element_at<T>(wholes[rank], first))[vector] = bits;
    }
  }

  // From element `begin` of the job on, one by one.
  __device__ void run_elements(int64_t begin) const {
    const int64_t step = int64_t{gridDim.x} * kThreads;
    for (int64_t i = begin + int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
      typename SumOf<T>::Type sum = widen(gpu_load_from_l2(element_at<T>(wholes[0], first + i)));
      for (int rank = 1; rank < size; ++rank) {
        sum = combine(op, sum, widen(gpu_load_from_l2(element_at<T>(wholes[rank], first + i))));
      }
      if (part != nullptr) {
        part[i] = narrow<T>(sum);
        continue;
      }
      for (int rank = 0; rank < size; ++rank) {
        *element_at<T>(wholes[rank], first + i) = narrow<T>(sum);
      }
    }
  }

  __device__ void run() const {
    int64_t done = 0;
    if (has_vectors()) {
      run_vectors();
      done = count / Sums<T>::kLength * Sums<T>::kLength;
    }
    run_elements(done);
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    reduce_by_address(const __grid_constant__ PeerView view,
                      const __grid_constant__ ReduceLaunch p) {
  __shared__ void* wholes[kMaxPeers];
  gpu_allow_next_grid();
  gpu_wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  if (!say_hello(view, epoch, p.whole, wholes)) return;
  ReduceJob<T> job = {wholes, static_cast<T*>(p.part), view.size, 0, p.count, p.op};
  if (p.part != nullptr) {
    job.first = view.rank * p.count;
  } else {
    constexpr int kLength = Sums<T>::kLength;
    const auto [begin, end] = share_of(p.count / kLength, view.rank, view.size);
    job.first = begin * kLength;
    job.count = (view.rank + 1 == view.size ? p.count : end * kLength) - job.first;
  }
  job.run();
  say_goodbye(view, epoch);
}

// The block's part of a copy.
template <typename T>
__device__ void copy_part(void* to, const void* from, int64_t count) {
  const auto [begin, end] = share_of(count, blockIdx.x, gridDim.x);
  for (int64_t at = begin + threadIdx.x; at < end; at += kAtOnce * kThreads) {
    T values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * kThreads < end) {
        values[i] = gpu_load_from_l2(static_cast<const T*>(from) + at + i * kThreads);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * kThreads < end) static_cast<T*>(to)[at + i * kThreads] = values[i];
    }
  }
}

__device__ void copy_any(void* to, const void* from, int64_t bytes) {
  const auto bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) |
                    static_cast<uintptr_t>(bytes);
  if (bits % sizeof(uint4) == 0) {
    copy_part<uint4>(to, from, bytes / int64_t{sizeof(uint4)});
  } else if (bits % sizeof(uint32_t) == 0) {
    copy_part<uint32_t>(to, from, bytes / int64_t{sizeof(uint32_t)});
  } else {
    copy_part<uint8_t>(to, from, bytes);
  }
}

__global__ void __launch_bounds__(kThreads)
    move_by_address(const __grid_constant__ PeerView view, const __grid_constant__ MoveLaunch p) {
  __shared__ void* targets[kMaxPeers];
  gpu_allow_next_grid();
  gpu_wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  if (!say_hello(view, epoch, p.to, targets)) return;
  // Everyone begins with another one.
  for (int i = 0; p.from != nullptr && i < view.size; ++i) {
    const int peer = (view.rank + i) % view.size;
    const char* from = static_cast<const char*>(p.from) + peer * p.from_stride;
    char* to = static_cast<char*>(targets[peer]) + view.rank * p.to_stride;
    if (to != from) copy_any(to, from, p.bytes);
  }
  say_goodbye(view, epoch);
}

__global__ void meet(const __grid_constant__ PeerView view) {
  __shared__ void* nothing[kMaxPeers];
  gpu_allow_next_grid();
  gpu_wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  if (!say_hello(view, epoch, nullptr, nothing)) return;
  end_epoch(view, epoch);
}

// The same on every rank: blocks exchange with those of their number.
unsigned num_blocks(int64_t vectors) {
  const int64_t wanted = (vectors + kAtOnce * kThreads - 1) / (kAtOnce * kThreads);
  return static_cast<unsigned>(wanted < 1                    ? 1
                               : wanted < kMaxExchangeBlocks ? wanted
                                                             : kMaxExchangeBlocks);
}

GpuLaunch launch_of(unsigned blocks, unsigned threads, gpuStream_t stream) {
  return {
      .grid = dim3(blocks), .block = dim3(threads), .stream = stream, .overlaps_previous = true};
}

template <typename T>
gpuError_t launch_reduce(const PeerView& view, const ReduceLaunch& p, gpuStream_t stream) {
  const int64_t vectors = p.count / Sums<T>::kLength / (p.part == nullptr ? view.size : 1);
  return gpu_launch(
      launch_of(num_blocks(vectors), kThreads, stream), &reduce_by_address<T>, view, p);
}

}  // namespace

gpuError_t launch_reduce_by_address(const PeerView& view,
                                    const ReduceLaunch& p,
                                    gpuStream_t stream) {
  return with_reduced_type(p.type, [&]<typename T>() { return launch_reduce<T>(view, p, stream); });
}

gpuError_t launch_move_by_address(const PeerView& view, const MoveLaunch& p, gpuStream_t stream) {
  const int64_t vectors = p.bytes / int64_t{sizeof(uint4)};
  return gpu_launch(launch_of(num_blocks(vectors), kThreads, stream), &move_by_address, view, p);
}

gpuError_t launch_barrier(const PeerView& view, gpuStream_t stream) {
  return gpu_launch(launch_of(1, 32, stream), &meet, view);
}

gpuError_t load_collectives() {
  return load_kernels(&reduce_by_address<float>,
                      &reduce_by_address<__half>,
                      &reduce_by_address<gpu_bfloat16>,
                      &reduce_by_address<int32_t>,
                      &reduce_by_address<int64_t>,
                      &move_by_address,
                      &meet);
}

}  // namespace atom
