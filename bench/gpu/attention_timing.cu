#include "attention_timing.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention_case.h"

namespace atom::bench {
namespace {

__global__ void fill_words(uint32_t* words, size_t count, bool is_8bit, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint64_t x = (i + seed) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    // 16 bit: bfloat16 of either sign in [0.5, 2); 8 bit: likewise in e4m3.
    const uint32_t bits = static_cast<uint32_t>(x);
    words[i] = is_8bit ? (bits & 0x8f8f8f8fu) | 0x30303030u : (bits & 0x80ff80ffu) | 0x3f003f00u;
  }
}

}  // namespace

void fill_random(void* data, size_t num_bytes, bool is_8bit, uint32_t seed) {
  fill_words<<<1024, 256>>>(static_cast<uint32_t*>(data), num_bytes / 4, is_8bit, seed);
}

double median_ms(int repeats, const std::function<void(int)>& launch) {
  gpuEvent_t begin;
  gpuEvent_t end;
  check_gpu(ATOM_GPU(EventCreate)(&begin), "event");
  check_gpu(ATOM_GPU(EventCreate)(&end), "event");
  std::vector<float> times(repeats);
  for (int i = -3; i < repeats; ++i) {
    check_gpu(ATOM_GPU(EventRecord)(begin), "event");
    launch(i + 3);
    check_gpu(ATOM_GPU(EventRecord)(end), "event");
    check_gpu(ATOM_GPU(EventSynchronize)(end), "run");
    if (i >= 0) {
      check_gpu(ATOM_GPU(EventElapsedTime)(&times[i], begin, end), "event");
    }
  }
  check_gpu(ATOM_GPU(EventDestroy)(begin), "event");
  check_gpu(ATOM_GPU(EventDestroy)(end), "event");
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[repeats / 2];
}

double graph_ms(int num_launches,
                int repeats,
                const std::function<void(int, gpuStream_t)>& launch) {
  gpuStream_t stream;
  check_gpu(ATOM_GPU(StreamCreateWithFlags)(&stream, cudaStreamNonBlocking), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t graph_exec;
  check_gpu(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < num_launches; ++i) {
    launch(i, stream);
  }
  check_gpu(cudaStreamEndCapture(stream, &graph), "capture");
  check_gpu(cudaGraphInstantiate(&graph_exec, graph, 0), "capture");
  const double ms =
      median_ms(repeats, [&](int) { check_gpu(cudaGraphLaunch(graph_exec, nullptr), "replay"); });
  check_gpu(cudaGraphExecDestroy(graph_exec), "graph");
  check_gpu(cudaGraphDestroy(graph), "graph");
  check_gpu(ATOM_GPU(StreamDestroy)(stream), "stream");
  return ms / num_launches;
}

}  // namespace atom::bench
