// y = x W^T (+ b) on a Hopper GPU in FP8 with scales of groups, activations of 1 x 128, weights of
// 128 x 128, for a decode step's rows where what a linear takes is the time from x's being there to
// y's being stored. The weight waits in shared memory by then; so a block copies as little of x as
// possible, and k is divided among the blocks of a cluster.
//
// The rows of x are those of one instruction of the matrix units, weight rows its columns: an
// instruction then has no rows to spare, and a thread has two scales of x for all of its sums.
//
// Every output is the same bits for the same shapes and tuning.
#pragma once

#include <vector>

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

constexpr int kMaxSplitKRows = 64;

struct LinearSplitKTuning {
  int tile_columns = 80;  // weight rows of a block: a multiple of 16
  int parts = 1;          // of k, the blocks of a cluster: 1, 2 or 4

  bool operator==(const LinearSplitKTuning&) const = default;
};

// All that there are kernels for.
std::vector<LinearSplitKTuning> linear_split_k_tunings();

// Whether each part of each tile has a multiprocessor, and a group of k.
bool takes_linear_split_k(const LinearGpuCall& params,
                          const LinearSplitKTuning& tuning,
                          int num_multiprocessors);

// What copies least to a multiprocessor; parts = 0 where no tuning takes the shape.
LinearSplitKTuning linear_split_k_tuning(const LinearGpuCall& params, int num_multiprocessors);

// Compute capability 9.0. y of 2 bytes, without an epilogue. in_features, x_stride and the weight's
// scale_rows are multiples of 16, out_features and y_stride are even.
bool supports_linear_split_k(const LinearGpuCall& params);
gpuError_t launch_linear_split_k(const LinearGpuCall& params,
                                 const LinearSplitKTuning& tuning,
                                 gpuStream_t stream);

}  // namespace atom::ops
