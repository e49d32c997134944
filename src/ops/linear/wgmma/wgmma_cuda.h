// y = x W^T (+ b) on a Hopper GPU for many rows: tiles of 128 rows and 256 weight rows in
// persistent blocks, in which one warpgroup copies x and the weight to shared memory and two
// multiply. Two blocks of a cluster share the weight rows.
//
// A sum is added up over ascending k in the matrix units' steps of 16: it has the same bits for any
// number of rows and place, on an H200 those of cuBLASLt's kernels that do not split k.
#pragma once

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

// Compute capability 9.0. x, weight and y of one type, bfloat16 or float16, stored or with SiLU.
// Rows of x, of the weight and of y are multiples of 16 bytes.
bool supports_linear_wgmma(const LinearGpuCall& params);
gpuError_t launch_linear_wgmma(const LinearGpuCall& params, gpuStream_t stream);

}  // namespace atom::ops
