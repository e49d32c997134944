#include "bench_serve/arrivals.h"

#include <algorithm>
#include <cmath>

namespace atom::bench_serve {
namespace {

double rate_of(const ArrivalOptions& options, size_t index, size_t count) {
  const double progress =
      static_cast<double>(index) / static_cast<double>(std::max<size_t>(count - 1, 1));
  switch (options.ramp_up) {
    case RampUp::kNone:
      return options.request_rate;
    case RampUp::kLinear:
      return options.ramp_up_start + (options.ramp_up_end - options.ramp_up_start) * progress;
    case RampUp::kExponential:
      return options.ramp_up_start *
             std::pow(options.ramp_up_end / options.ramp_up_start, progress);
  }
  return options.request_rate;
}

// A gap of mean 1.
double unit_gap(double burstiness, Random* random) {
  return std::isinf(burstiness) ? 1 : random->gamma(burstiness) / burstiness;
}

}  // namespace

std::vector<double> make_schedule(const ArrivalOptions& options, size_t count, Random* random) {
  std::vector<double> times(count, 0);
  if (options.ramp_up == RampUp::kNone && std::isinf(options.request_rate)) return times;
  const auto burst = static_cast<size_t>(std::max(options.burst_size, 1));
  double now = 0;
  for (size_t i = 1; i < count; ++i) {
    if (i % burst == 0) {
      // A ramp that begins at zero would wait forever for its first request.
      const double rate = std::max(rate_of(options, i, count), 1e-6);
      now += unit_gap(options.burstiness, random) * static_cast<double>(burst) / rate;
    }
    times[i] = now;
  }
  if (options.ramp_up != RampUp::kNone || now == 0) return times;
  const double last = static_cast<double>((count - 1) / burst * burst) / options.request_rate;
  for (double& time : times) time *= last / now;
  return times;
}

}  // namespace atom::bench_serve
