// y = x W^T (+ b) on a GPU by sums of one order: float32, by the tensor cores, sixteen products at
// a time in ascending k, all in one accumulator. The order depends on nothing else, so that a row's
// result is its own; and Hopper's warpgroup instructions add in it too when a block has all of k,
// so that algorithms of the library give the same bits (GemmTuner finds out which).
//
// Up to 8 rows the weight is read at nearly the speed of memory; more read it again for every 8.
#pragma once

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

constexpr int kOrderedRows = 8;

// bfloat16 or float16 both, without an epilogue but bias. Compute capability 8.0 and up.
bool supports_linear_ordered(const LinearGpuCall& params);
gpuError_t launch_linear_ordered(const LinearGpuCall& params, gpuStream_t stream);

// Adds to `count` (on the device) how many of so many bytes differ, in pairs. Both 2-byte aligned.
gpuError_t launch_count_differences(
    const void* a, const void* b, int64_t num_bytes, int32_t* count, gpuStream_t stream);

}  // namespace atom::ops
