// What the GPU benchmarks share: device memory, random contents, medians of timings, and the roofs
// that results are compared with.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tensor/element.h"
#include "tensor/gpu_api.h"

namespace atom::bench {

#define ATOM_BENCH_CHECK(call)                                                                  \
  do {                                                                                          \
    const gpuError_t bench_error = (call);                                                      \
    if (bench_error != ATOM_GPU(Success)) {                                                     \
      std::printf(                                                                              \
          "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ATOM_GPU(GetErrorString)(bench_error)); \
      std::exit(1);                                                                             \
    }                                                                                           \
  } while (false)

// Device memory; freed at the end.
class Buffer {
 public:
  explicit Buffer(int64_t size) : size_(size) { ATOM_BENCH_CHECK(ATOM_GPU(Malloc)(&data_, size)); }
  ~Buffer() { (void)ATOM_GPU(Free)(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  template <typename T = void>
  T* data(int64_t byte_offset = 0) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + byte_offset);
  }
  int64_t size() const { return size_; }

  template <typename T>
  std::vector<T> download() const {
    std::vector<T> host(static_cast<size_t>(size_) / sizeof(T));
    ATOM_BENCH_CHECK(ATOM_GPU(DeviceSynchronize)());
    ATOM_BENCH_CHECK(ATOM_GPU(Memcpy)(
        host.data(), data_, host.size() * sizeof(T), ATOM_GPU(MemcpyDeviceToHost)));
    return host;
  }
  template <typename T>
  void upload(const std::vector<T>& host) {
    ATOM_BENCH_CHECK(ATOM_GPU(Memcpy)(
        data_, host.data(), host.size() * sizeof(T), ATOM_GPU(MemcpyHostToDevice)));
  }
  void fill_bytes(int value) { ATOM_BENCH_CHECK(ATOM_GPU(Memset)(data_, value, size_)); }

 private:
  void* data_ = nullptr;
  int64_t size_;
};

// Uniform in [-bound, bound], rounded to the element type.
void fill_random(void* data, Element element, int64_t count, float bound, uint64_t seed);

// The value of one element on the host.
double element_value(Element element, const void* data, int64_t index);

using Work = std::function<void(gpuStream_t)>;

// Medians in microseconds of one run of `work`, launched directly and as a captured graph.
double time_launches(const Work& work, int num_runs);
double time_graph(const Work& work, int num_runs);

// One call among many: of a large call, that is launched directly; of a small one, whose launch
// takes longer than itself, in a graph. Calls take turns with `num_sets` sets of operands.
using NumberedWork = std::function<void(gpuStream_t, int set)>;
double time_call(const NumberedWork& work, bool large, int num_sets = 1);

// As many sets of operands of `size` bytes as no cache holds.
int sets_beyond_caches(int64_t size);

struct Roofs {
  double read;  // bytes per second
  double copy;  // bytes read and written
};
// As ops::measure_roofs() finds them; also prints them and the card.
Roofs measure_roofs();

// Microseconds of copies that read and write `size` bytes altogether, timed as a large call.
double time_copy(int64_t size);

// A line about one call that takes so long and moves so many bytes.
void report(const char* what, double us, int64_t bytes, bool large, const Roofs& roofs);

// The worst of many comparisons, as a share of what each allows; NaN is the worst of all.
struct Verdict {
  double worst = 0;
  void see(double got, double expected, double allowed) {
    const double error = std::fabs(got - expected) / allowed;
    if (!(error <= worst)) worst = error == error ? error : 1e9;
  }
  int print(const char* what) const {
    const bool passed = worst <= 1;
    std::printf("%-44s: %s max_err %.3f of allowed\n", what, passed ? "PASS" : "FAIL", worst);
    return passed ? 0 : 1;
  }
};

}  // namespace atom::bench
