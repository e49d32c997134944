#include "bench_serve/random.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace atom::bench_serve {

double Random::uniform() {
  return static_cast<double>(engine_() >> 11) * 0x1p-53;
}

double Random::normal() {
  // Box and Muller; 1 - u is never zero.
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double Random::gamma(double shape) {
  CHECK(shape > 0);
  if (shape < 1) return gamma(shape + 1) * std::pow(1 - uniform(), 1 / shape);
  // Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

int64_t Random::between(int64_t low, int64_t high) {
  CHECK(low <= high);
  const uint64_t range = static_cast<uint64_t>(high - low) + 1;
  if (range == 0) return static_cast<int64_t>(engine_());
  const auto product = static_cast<unsigned __int128>(engine_()) * range;
  return low + static_cast<int64_t>(static_cast<uint64_t>(product >> 64));
}

}  // namespace atom::bench_serve
