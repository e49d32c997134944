// What this machine can do at most right now: the figures that operators are measured against. On
// shared hosts they move, so measure them beside the operator, in the same process.
#pragma once

#include "tensor/stream.h"

namespace atom::ops {

struct CpuRoofs {
  double read_bandwidth = 0;  // bytes per second, from main memory, all workers together
  double bf16_flops = 0;      // bfloat16 multiply-adds with float32 sums, twice per second
  double f32_flops = 0;       // float32 multiply-adds, twice per second
};

// Each figure is the best of several windows within `seconds_each`: passes over 512 MiB for the
// bandwidth, short register-only loops for the arithmetic. The first call takes longer: it
// allocates the memory that is read.
CpuRoofs measure_cpu_roofs(const Stream& stream, double seconds_each);

}  // namespace atom::ops
