#include "harness.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/device/elements.cuh"
#include "ops/roofs/roofs_gpu_kernels.h"

namespace atom::bench {
namespace {

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

void fill_random(void* data, Element element, int64_t count, float bound, uint64_t seed) {
  constexpr int kBlocks = 2048, kThreads = 256;
  switch (element) {
    case Element::kFloat32:
      fill_kernel<<<kBlocks, kThreads>>>(static_cast<float*>(data), count, bound, seed);
      break;
    case Element::kFloat16:
      fill_kernel<<<kBlocks, kThreads>>>(static_cast<Half*>(data), count, bound, seed);
      break;
    case Element::kBFloat16:
      fill_kernel<<<kBlocks, kThreads>>>(static_cast<BFloat16*>(data), count, bound, seed);
      break;
    case Element::kFloat8E4M3:
      fill_kernel<<<kBlocks, kThreads>>>(static_cast<Float8*>(data), count, bound, seed);
      break;
  }
  ATOM_BENCH_CHECK(ATOM_GPU(GetLastError)());
}

double element_value(Element element, const void* data, int64_t index) {
  switch (element) {
    case Element::kFloat32:
      return static_cast<const float*>(data)[index];
    case Element::kFloat16:
      return __half2float(static_cast<const __half*>(data)[index]);
    case Element::kBFloat16:
      return __bfloat162float(static_cast<const gpu_bfloat16*>(data)[index]);
    case Element::kFloat8E4M3: {
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

double time_call(const NumberedWork& work, bool large, int num_sets) {
  constexpr int kDirect = 12, kRecorded = 50, kRuns = 9;
  const int count = large ? kDirect : kRecorded;
  const Work chain = [&](gpuStream_t stream) {
    for (int i = 0; i < count; ++i) work(stream, i % num_sets);
  };
  return (large ? time_launches(chain, kRuns) : time_graph(chain, kRuns)) / count;
}

int sets_beyond_caches(int64_t size) {
  constexpr int64_t kEnough = 512 << 20;
  return static_cast<int>(std::clamp<int64_t>(kEnough / size, 1, 4));
}

double time_copy(int64_t size) {
  const int64_t half = (size / 2 + 15) / 16 * 16;
  const int sets = sets_beyond_caches(2 * half);
  const Buffer from(half * sets), to(half * sets);
  fill_random(from.data(), Element::kFloat32, half * sets / 4, 1.0f, 1);
  double best = std::numeric_limits<double>::infinity();
  for (const int blocks : {528, 1056, 4224, 8448}) {
    const auto copy = [&](gpuStream_t stream, int set) {
      ops::roofs_kernels::copy_gpu(
          from.data(set * half), to.data(set * half), half, blocks, stream);
    };
    best = std::min(best, time_call(copy, true, sets));
  }
  return best;
}

void report(const char* what, double us, int64_t bytes, bool large, const Roofs& roofs) {
  const double per_second = static_cast<double>(bytes) / (us * 1e-6);
  std::printf("time %-44s %9.2f us %6.3f TB/s %5.1f %%",
              what,
              us,
              per_second * 1e-12,
              100 * per_second / roofs.copy);
  if (large) std::printf(", %5.1f %% of a copy of as many bytes", 100 * time_copy(bytes) / us);
  std::printf("\n");
}

}  // namespace atom::bench
