// y = x W^T (+ b) on a Hopper GPU for up to 64 rows, by sums of one order, whatever their number:
// over ascending k in the matrix units' steps, in FP8 of 128 k, whose sums are added in float32.
// Algorithms of cuBLASLt that do not split sums do the same additions (GemmTuner finds out which),
// and multiply by the weight row's scale first, then by that of x.
//
// The weight is read once, as by the linear for few rows (skinny/skinny_cuda.h), but each output's
// k is one block's.
#pragma once

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

constexpr int kMaxOrderedRows = 64;

// On compute capability 9.0 alone, with bias and SiLU. x and weight of one type:
// bfloat16, float16, or FP8 with y of 2 bytes. Rows of the weight are multiples of 128 bytes, those
// of x multiples of 16.
bool supports_linear_ordered_sm90(const LinearGpuCall& params);
gpuError_t launch_linear_ordered_sm90(const LinearGpuCall& params, gpuStream_t stream);

// What the benchmark varies; bits do not depend on it.
struct OrderedTuning {
  int one_group_rows = 64;  // in 16 bits: up to so many rows of x one warpgroup has all
};
gpuError_t launch_linear_ordered_sm90(const LinearGpuCall& params,
                                      const OrderedTuning& tuning,
                                      gpuStream_t stream);

}  // namespace atom::ops
