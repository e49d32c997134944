#include "ops/roofs/roofs_gpu_kernels.h"

#include "tensor/gpu_api.h"
#include "tensor/gpu_launch.h"

namespace atom::ops::roofs_kernels {
namespace {

constexpr int kThreads = 512;

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, int64_t count, uint32_t* never) {
  constexpr int kLoads = 8;
  uint32_t sum = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += kLoads * step) {
    uint4 value[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      value[j] = i + j * step < count ? gpu_load_once(data + i + j * step) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum ^= value[j].x ^ value[j].y ^ value[j].z ^ value[j].w;
  }
  // `never` is null, which the compiler cannot know.
  if (never != nullptr) atomicXor(never, sum);
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const uint4* from, uint4* to, int64_t count) {
  constexpr int kLoads = 4;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += kLoads * step) {
    uint4 value[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      if (i + j * step < count) value[j] = gpu_load_once(from + i + j * step);
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      if (i + j * step < count) gpu_store_once(to + i + j * step, value[j]);
    }
  }
}

}  // namespace

void read_gpu(const void* data, int64_t size, int num_blocks, void* queue) {
  read_kernel<<<num_blocks, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(
      static_cast<const uint4*>(data), size / 16, nullptr);
  check_gpu_launch("read_roof");
}

void copy_gpu(const void* from, void* to, int64_t size, int num_blocks, void* queue) {
  copy_kernel<<<num_blocks, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(
      static_cast<const uint4*>(from), static_cast<uint4*>(to), size / 16);
  check_gpu_launch("copy_roof");
}

}  // namespace atom::ops::roofs_kernels
