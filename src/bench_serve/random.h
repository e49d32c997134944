// Random numbers that depend on the seed alone, on every machine: the distributions of <random> are
// the library's choice. Not thread-safe.
#pragma once

#include <cstdint>
#include <random>

namespace atom::bench_serve {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  double uniform();                            // [0, 1)
  double normal();                             // mean 0, variance 1
  double gamma(double shape);                  // shape > 0, scale 1
  int64_t between(int64_t low, int64_t high);  // [low, high], low <= high
  size_t index(size_t size) { return static_cast<size_t>(between(0, int64_t(size) - 1)); }

 private:
  std::mt19937_64 engine_;  // its sequence is the standard's
};

}  // namespace atom::bench_serve
