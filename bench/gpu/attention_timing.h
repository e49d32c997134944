// What the benchmarks of attention share: contents and medians of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "tensor/gpu_api.h"

namespace atom::bench {

// Values of either sign in [0.5, 2), of bfloat16 or e4m3; `data` is the device's.
void fill_random(void* data, size_t num_bytes, bool is_8bit, uint32_t seed);

// Median milliseconds of `launch(i)`, i = 0, 1, ...; the first three are not counted.
double median_ms(int repeats, const std::function<void(int)>& launch);

// Median milliseconds of one of `num_launches` calls of `launch(i, stream)`, captured as one
// sequence: without the host's gaps between small launches.
double graph_ms(int num_launches, int repeats, const std::function<void(int, gpuStream_t)>& launch);

}  // namespace atom::bench
