// y = x W^T (+ b) on a Hopper GPU for the rows of a decode step, at the speed at which the weight
// can be read: weight and x come to shared memory in tensor copies and the matrix units read them
// there, the weight as the factor of many rows. The weight is read once.
//
// The blocks of a cluster may divide k among them; their sums are added in one order. Every output
// is the same bits for the same shapes and tuning.
//
// As with the streaming linear (stream/stream_sm90.h), the weight's transfer starts before the
// kernel before has ended.
#pragma once

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

constexpr int kMaxSkinnyRows = 64;

struct LinearSkinnyTuning {
  int tile_rows = 64;  // weight rows that are multiplied at a time: a multiple of 16, to 128
  int num_splits = 1;  // of k, the blocks of a cluster: 1 or 2, with no more tiles than clusters
  int num_panels = 2;  // of 128 bytes of k that a stage of the pipeline holds: 1, 2 or 4; with
                       // groups 4 up to 16 rows, then 2
};

// What measured best.
LinearSkinnyTuning linear_skinny_tuning(const LinearGpuCall& params, int num_multiprocessors);

// Compute capability 9.0. x and weight of one type: bfloat16, float16, or FP8 with y of 2 bytes.
// in_features and x_stride are multiples of 16 bytes. With groups, scale_rows and, with SiLU, the
// gate rows are multiples of 16.
bool supports_linear_skinny(const LinearGpuCall& params);
// `tuning`: null for what measured best.
gpuError_t launch_linear_skinny(const LinearGpuCall& params,
                                const LinearSkinnyTuning* tuning,
                                gpuStream_t stream);

}  // namespace atom::ops
