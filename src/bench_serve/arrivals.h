// When requests are sent: fixed before the run, whatever the server does with them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "bench_serve/random.h"

namespace atom::bench_serve {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

enum class RampUp { kNone, kLinear, kExponential };

struct ArrivalOptions {
  double request_rate = kUnlimited;  // requests/s; unlimited: all at once
  // Gaps are gamma-distributed with this shape: 1 is a Poisson process, less is burstier, more is
  // more even, and unlimited is constant.
  double burstiness = 1;
  int32_t burst_size = 1;  // requests that are sent at the same moment
  // The rate of request i of n is interpolated at i / (n - 1); request_rate does not count then.
  RampUp ramp_up = RampUp::kNone;
  double ramp_up_start = 0;  // requests/s, > 0 when exponential
  double ramp_up_end = 0;
};

// Seconds after the start, ascending, the first zero. Without a ramp the last is exactly where the
// rate puts it, so that runs with other seeds offer the same load.
std::vector<double> make_schedule(const ArrivalOptions& options, size_t count, Random* random);

}  // namespace atom::bench_serve
