// What this machine can do at most right now: the figures that operators are measured against. On
// shared hosts they move, so measure them beside the operator, in the same process.
#pragma once

#include "tensor/stream.h"

namespace atom::ops {

// A figure that was not measured is 0.
struct Roofs {
  double read_bandwidth = 0;  // bytes per second, from the device's main memory, all of it together
  double bf16_flops = 0;      // bfloat16 multiply-adds with float32 sums, twice per second
  double f32_flops = 0;       // float32 multiply-adds, twice per second
  // A GPU's alone.
  double copy_bandwidth = 0;  // bytes read and written per second
  double fp8_flops = 0;       // FP8 multiply-adds with float32 sums, twice per second
};

// Each figure is the best of several windows within `seconds_each`. Of the CPU: passes over 512 MiB
// for the bandwidth, short register-only loops for the arithmetic. Of a GPU: passes over 1 GiB, and
// cuBLASLt's multiplications of large square matrices; without that library no arithmetic is
// measured. The first call takes longer: it allocates the memory, which stays.
Roofs measure_roofs(const Stream& stream, double seconds_each);

}  // namespace atom::ops
