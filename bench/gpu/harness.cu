#include "harness.h"

#include <algorithm>
#include <cmath>

#include "ops/device/elements.cuh"

namespace atom::bench {
namespace {

using ops::GpuElement;
using namespace ops::device;

__host__ __device__ inline uint32_t hashed(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return static_cast<uint32_t>(x >> 32);
}

template <typename T>
__global__ void fill_kernel(T* data, int64_t count, float bound, uint64_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const float unit = static_cast<float>(hashed(seed * 0x9e3779b97f4a7c15ull + i)) * 0x1p-31f;
    data[i] = from_float<T>((unit - 1.0f) * bound);
  }
}

__global__ void __launch_bounds__(512)
    read_kernel(const uint4* data, int64_t count, uint32_t* out) {
  constexpr int kLoads = 8;
  uint32_t sum = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += kLoads * step) {
    uint4 value[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      value[j] = i + j * step < count ? __ldcs(data + i + j * step) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum ^= value[j].x ^ value[j].y ^ value[j].z ^ value[j].w;
  }
  if (sum == 0x12345678u) *out = sum;
}

__global__ void __launch_bounds__(512) copy_kernel(const uint4* from, uint4* to, int64_t count) {
  constexpr int kLoads = 4;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += kLoads * step) {
    uint4 value[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      if (i + j * step < count) value[j] = __ldcs(from + i + j * step);
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      if (i + j * step < count) __stcs(to + i + j * step, value[j]);
    }
  }
}

template <typename Run>
double median_of(int num_runs, Run&& run) {
  gpuEvent_t begin, end;
  ATOM_BENCH_CHECK(ATOM_GPU(EventCreate)(&begin));
  ATOM_BENCH_CHECK(ATOM_GPU(EventCreate)(&end));
  gpuStream_t stream;
  ATOM_BENCH_CHECK(ATOM_GPU(StreamCreate)(&stream));
  run(stream);
  run(stream);
  std::vector<double> times;
  for (int i = 0; i < num_runs; ++i) {
    ATOM_BENCH_CHECK(ATOM_GPU(EventRecord)(begin, stream));
    run(stream);
    ATOM_BENCH_CHECK(ATOM_GPU(EventRecord)(end, stream));
    ATOM_BENCH_CHECK(ATOM_GPU(EventSynchronize)(end));
    float milliseconds = 0;
    ATOM_BENCH_CHECK(ATOM_GPU(EventElapsedTime)(&milliseconds, begin, end));
    times.push_back(1e3 * milliseconds);
  }
  ATOM_BENCH_CHECK(ATOM_GPU(StreamDestroy)(stream));
  ATOM_BENCH_CHECK(ATOM_GPU(EventDestroy)(begin));
  ATOM_BENCH_CHECK(ATOM_GPU(EventDestroy)(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

void fill_random(void* data, GpuElement element, int64_t count, float bound, uint64_t seed) {
  constexpr int kBlocks = 2048, kThreads = 256;
  switch (element) {
    case GpuElement::kFloat32:
      fill_kernel<<<kBlocks, kThreads>>>(static_cast<float*>(data), count, bound, seed);
      break;
    case GpuElement::kFloat16:
      fill_kernel<<<kBlocks, kThreads>>>(static_cast<Half*>(data), count, bound, seed);
      break;
    case GpuElement::kBFloat16:
      fill_kernel<<<kBlocks, kThreads>>>(static_cast<BFloat16*>(data), count, bound, seed);
      break;
    case GpuElement::kFloat8E4M3:
      fill_kernel<<<kBlocks, kThreads>>>(static_cast<Float8*>(data), count, bound, seed);
      break;
  }
  ATOM_BENCH_CHECK(ATOM_GPU(GetLastError)());
}

double element_value(GpuElement element, const void* data, int64_t index) {
  switch (element) {
    case GpuElement::kFloat32:
      return static_cast<const float*>(data)[index];
    case GpuElement::kFloat16:
      return __half2float(static_cast<const __half*>(data)[index]);
    case GpuElement::kBFloat16:
      return __bfloat162float(static_cast<const gpu_bfloat16*>(data)[index]);
    case GpuElement::kFloat8E4M3: {
      const uint8_t bits = static_cast<const uint8_t*>(data)[index];
      const int exponent = bits >> 3 & 15, mantissa = bits & 7;
      if (exponent == 15 && mantissa == 7) return std::nan("");
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      return (bits & 128) != 0 ? -magnitude : magnitude;
    }
  }
  return 0;
}

double time_launches(const Work& work, int num_runs) {
  return median_of(num_runs, work);
}

double time_graph(const Work& work, int num_runs) {
  gpuStream_t stream;
  ATOM_BENCH_CHECK(ATOM_GPU(StreamCreate)(&stream));
  ATOM_BENCH_CHECK(ATOM_GPU(StreamBeginCapture)(stream, ATOM_GPU(StreamCaptureModeGlobal)));
  work(stream);
  ATOM_GPU(Graph_t) graph;
  ATOM_BENCH_CHECK(ATOM_GPU(StreamEndCapture)(stream, &graph));
  ATOM_GPU(GraphExec_t) instance;
  ATOM_BENCH_CHECK(ATOM_GPU(GraphInstantiate)(&instance, graph, 0));
  const double time = median_of(
      num_runs, [&](gpuStream_t s) { ATOM_BENCH_CHECK(ATOM_GPU(GraphLaunch)(instance, s)); });
  ATOM_BENCH_CHECK(ATOM_GPU(GraphExecDestroy)(instance));
  ATOM_BENCH_CHECK(ATOM_GPU(GraphDestroy)(graph));
  ATOM_BENCH_CHECK(ATOM_GPU(StreamDestroy)(stream));
  return time;
}

Roofs measure_roofs() {
  constexpr int64_t kSize = int64_t{2} << 30;
  const Buffer from(kSize), to(kSize);
  fill_random(from.data(), GpuElement::kFloat32, kSize / 4, 1.0f, 1);
  Roofs roofs{};
  const int64_t count = kSize / 16;
  for (int blocks : {264, 528, 1056, 4096, 16384}) {
    const double read = time_launches(
        [&](gpuStream_t s) {
          read_kernel<<<blocks, 512, 0, s>>>(from.data<uint4>(), count, to.data<uint32_t>());
        },
        7);
    const double copy = time_launches(
        [&](gpuStream_t s) {
          copy_kernel<<<blocks, 512, 0, s>>>(from.data<uint4>(), to.data<uint4>(), count);
        },
        7);
    roofs.read = std::max(roofs.read, kSize / read * 1e6);
    roofs.copy = std::max(roofs.copy, 2 * kSize / copy * 1e6);
  }
  const double runtime_copy = time_launches(
      [&](gpuStream_t s) {
        ATOM_BENCH_CHECK(ATOM_GPU(MemcpyAsync)(
            to.data(), from.data(), kSize, ATOM_GPU(MemcpyDeviceToDevice), s));
      },
      7);
  roofs.copy = std::max(roofs.copy, 2 * kSize / runtime_copy * 1e6);
  return roofs;
}

void print_device() {
  int device = 0;
  ATOM_BENCH_CHECK(ATOM_GPU(GetDevice)(&device));
  cudaDeviceProp properties{};
  ATOM_BENCH_CHECK(ATOM_GPU(GetDeviceProperties)(&properties, device));
  std::printf("device %s, %d multiprocessors, L2 %.0f MB\n",
              properties.name,
              properties.multiProcessorCount,
              properties.l2CacheSize / 1048576.0);
}

}  // namespace atom::bench
