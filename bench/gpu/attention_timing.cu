#include "attention_timing.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
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

__global__ void read_all(const uint4* data, size_t count, uint32_t* out) {
  uint32_t sum = 0;
#pragma unroll 8
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    const uint4 words = __ldcs(data + i);
    sum += words.x ^ words.y ^ words.z ^ words.w;
  }
  if (sum == 0x12345678u) {
    *out = sum;
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

double measure_copy_bandwidth() {
  const size_t bytes = size_t{1} << 30;
  DeviceBuffer from(bytes);
  DeviceBuffer to(bytes);
  fill_random(from.get(), bytes, false, 1);
  const double copy_ms = median_ms(20, [&](int) {
    check_gpu(ATOM_GPU(MemcpyAsync)(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, nullptr),
              "copy");
  });
  const double read_ms = median_ms(20, [&](int) {
    read_all<<<2048, 512>>>(static_cast<const uint4*>(from.get()),
                            bytes / sizeof(uint4),
                            static_cast<uint32_t*>(to.get()));
  });
  const double rate = 2 * bytes / copy_ms * 1e3;
  std::printf("copy: %.2f TB/s, read: %.2f TB/s\n", rate / 1e12, bytes / read_ms / 1e9);
  return rate;
}

}  // namespace atom::bench
