// y = x W^T (+ b) on a GPU for the few rows of a decode step, at the speed at which the weight can
// be read: bulk copies bring it to shared memory, tensor cores multiply. The weight is row-major
// and read once; the rows of x are small.
//
// Every output is a float32 sum in one fixed order that depends on in_features and the tuning
// alone: neither on the other rows nor on their number.
#pragma once

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

constexpr int kMaxStreamRows = 16;

// The shape of the pipeline. Results depend on slice_size only.
struct LinearStreamTuning {
  int slice_size = 256;  // bytes of a weight row that a warp copies at a time: 128 or 256
  // Units of 16 such rows, per warp, that are fetched to the L2 cache beyond the pipeline's own
  // before the previous grid has ended.
  int l2_prefetch_units = 0;
};

// The pipeline that measured best.
LinearStreamTuning linear_stream_tuning(const LinearGpuCall& call);

// Compute capability 9.0 and up. 1 to kMaxStreamRows rows. in_features is a multiple of 64 bytes of
// the weight's element.
bool supports_linear_stream_sm90(const LinearGpuCall& call);
gpuError_t launch_linear_stream_sm90(const LinearGpuCall& call, gpuStream_t stream);
gpuError_t launch_linear_stream_sm90(const LinearGpuCall& call,
                                     const LinearStreamTuning& tuning,
                                     gpuStream_t stream);

}  // namespace atom::ops
