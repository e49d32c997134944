// RMSNorm on any GPU: a warp per short row, a block per long one.
#include "ops/device/dispatch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/rms_norm/rms_norm_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::from_float;
using device::kWarpSize;
using device::to_float;

constexpr int kThreads = 256;
// Rows up to here are a warp's.
constexpr int64_t kShortRow = 512;

template <typename T, bool kWarpRows>
__global__ void rms_norm_kernel(RmsNormArgs args, int64_t num_rows) {
  __shared__ float partial[kThreads / kWarpSize];
  constexpr int kRowThreads = kWarpRows ? kWarpSize : kThreads;
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  // Whole warps leave together, and with a block per row no block is without one.
  if (row >= num_rows) return;
  const int thread = threadIdx.x % kRowThreads;
  const int64_t token = row / args.num_heads, head = row % args.num_heads;
  const T* x = static_cast<const T*>(args.x) + token * args.x_strides[0] + head * args.x_strides[1];
  T* out = static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1];
  T* residual = static_cast<T*>(args.residual);
  if (residual != nullptr) residual += token * args.residual_stride;

  float sum_of_squares = 0;
  for (int64_t i = thread; i < args.size; i += kRowThreads) {
    float value = to_float(x[i]);
    if (residual != nullptr) {
      residual[i] = from_float<T>(value + to_float(residual[i]));
      value = to_float(residual[i]);
    }
    sum_of_squares += value * value;
  }
  sum_of_squares = kWarpRows ? device::reduce_lanes(sum_of_squares, kWarpSize, device::Sum{})
                             : device::reduce_block(sum_of_squares, partial, device::Sum{});
  const float scale = 1.0f / sqrtf(sum_of_squares / static_cast<float>(args.size) + args.eps);
  const T* source = residual != nullptr ? residual : x;
  for (int64_t i = thread; i < args.size; i += kRowThreads) {
    const float y = to_float(source[i]) * scale;
    if (args.rounds_once) {
      out[i] = from_float<T>(static_cast<const float*>(args.weight)[i] * y);
    } else {
      const float weight = to_float(static_cast<const T*>(args.weight)[i]);
      out[i] = from_float<T>(weight * to_float(from_float<T>(y)));
    }
  }
}

}  // namespace

void rms_norm_cuda(const RmsNormArgs& args, int64_t num_rows, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    if (args.size <= kShortRow) {
      constexpr int kRowsPerBlock = kThreads / kWarpSize;
      const auto grid = static_cast<unsigned>((num_rows + kRowsPerBlock - 1) / kRowsPerBlock);
      rms_norm_kernel<T, true><<<grid, kThreads, 0, stream>>>(args, num_rows);
    } else {
      rms_norm_kernel<T, false>
          <<<static_cast<unsigned>(num_rows), kThreads, 0, stream>>>(args, num_rows);
    }
  });
  check_gpu_launch("rms_norm");
}

}  // namespace atom::ops
