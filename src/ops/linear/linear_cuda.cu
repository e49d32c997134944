#include "ops/device/dispatch.cuh"
#include "ops/linear/linear_cuda.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::from_float;
using device::to_float;

constexpr int kTile = 16;
constexpr int64_t kMaxGridRows = 65535;

__device__ float bias_at(const LinearCudaArgs& args, int64_t column) {
  if (args.bias == nullptr) return 0.0f;
  switch (args.bias_element) {
    case Element::kFloat32:
      return static_cast<const float*>(args.bias)[column];
    case Element::kFloat16:
      return to_float(static_cast<const device::Half*>(args.bias)[column]);
    default:
      return to_float(static_cast<const device::BFloat16*>(args.bias)[column]);
  }
}

__device__ float scale_at(const float* scales, bool per_row, int64_t row) {
  return scales == nullptr ? 1.0f : scales[per_row ? row : 0];
}

template <typename X, typename W, typename Y>
__global__ void linear_kernel(LinearCudaArgs args, int64_t first_row) {
  __shared__ float x_tile[kTile][kTile];
  __shared__ float weight_tile[kTile][kTile + 1];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int64_t row = first_row + int64_t{blockIdx.y} * kTile + ty;
  const int64_t column = int64_t{blockIdx.x} * kTile + tx;
  const int64_t weight_row = int64_t{blockIdx.x} * kTile + ty;
  float sum = 0;
  for (int64_t begin = 0; begin < args.in_features; begin += kTile) {
    const int64_t k = begin + tx;
    const bool in_k = k < args.in_features;
    x_tile[ty][tx] = in_k && row < args.num_rows
                         ? to_float(static_cast<const X*>(args.x)[row * args.x_stride + k])
                         : 0.0f;
    weight_tile[ty][tx] =
        in_k && weight_row < args.out_features
            ? to_float(static_cast<const W*>(args.weight)[weight_row * args.in_features + k])
            : 0.0f;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += x_tile[ty][i] * weight_tile[tx][i];
    __syncthreads();
  }
  if (row >= args.num_rows || column >= args.out_features) return;
  const float scaled = sum * scale_at(args.weight_scales, args.weight_scale_per_row, column) *
                       scale_at(args.x_scales, args.x_scale_per_row, row);
  static_cast<Y*>(args.y)[row * args.y_stride + column] =
      from_float<Y>(scaled + bias_at(args, column));
}

template <typename X, typename W, typename Y>
void launch(const LinearCudaArgs& args, gpuStream_t stream) {
  const auto columns = static_cast<unsigned>((args.out_features + kTile - 1) / kTile);
  for (int64_t first = 0; first < args.num_rows; first += kMaxGridRows * kTile) {
    const int64_t rows = (args.num_rows - first + kTile - 1) / kTile;
    const dim3 grid(columns, static_cast<unsigned>(rows < kMaxGridRows ? rows : kMaxGridRows));
    linear_kernel<X, W, Y><<<grid, dim3(kTile, kTile), 0, stream>>>(args, first);
  }
}

template <typename X, typename W>
void launch_to_own_or_float(const LinearCudaArgs& args, gpuStream_t stream) {
  if (args.y_element == Element::kFloat32) {
    launch<X, W, float>(args, stream);
  } else {
    launch<X, W, X>(args, stream);
  }
}

}  // namespace

void linear_cuda(const LinearCudaArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  using device::Float8;
  if (args.x_element == Element::kFloat8E4M3) {
    device::dispatch_element(args.y_element, [&]<typename Y>(ElementTag<Y>) {
      launch<Float8, Float8, Y>(args, stream);
    });
  } else {
    device::dispatch_element(args.x_element, [&]<typename X>(ElementTag<X>) {
      if (args.weight_element == Element::kFloat8E4M3) {
        launch_to_own_or_float<X, Float8>(args, stream);
      } else {
        launch_to_own_or_float<X, X>(args, stream);
      }
    });
  }
  check_gpu_launch("linear");
}

}  // namespace atom::ops
