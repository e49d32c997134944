#include "ops/device/dispatch.cuh"
#include "ops/linear/linear_float8_cuda.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kThreads = 256;
constexpr int64_t kMaxGridRows = 65535;

unsigned blocks_of(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

unsigned grid_rows(int64_t rows) {
  return static_cast<unsigned>(rows < kMaxGridRows ? rows : kMaxGridRows);
}

template <typename T>
__global__ void expand_kernel(Float8Expansion args) {
  constexpr int kLength = 8;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kLength;
  if (first >= args.size) return;
  for (int64_t row = blockIdx.y; row < args.num_rows; row += gridDim.y) {
    const auto* from = static_cast<const Float8*>(args.codes) + row * args.codes_stride + first;
    const auto codes = *reinterpret_cast<const Pack<Float8, kLength>*>(from);
    T* to = static_cast<T*>(args.values) + row * args.size + first;
    constexpr int kPart = Vector<T>::kLength < kLength ? Vector<T>::kLength : kLength;
#pragma unroll
    for (int part = 0; part < kLength; part += kPart) {
      Pack<T, kPart> values;
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        values.element[i] = from_float<T>(to_float(codes.element[part + i]));
      }
      *reinterpret_cast<Pack<T, kPart>*>(to + part) = values;
    }
  }
}

constexpr int kColumns = 4;  // of a thread

template <typename Bias>
__device__ void load_bias(const void* bias, int64_t column, float (&values)[kColumns]) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    values[i] = to_float(static_cast<const Bias*>(bias)[column + i]);
  }
}

template <typename Y>
__global__ void scale_sums_kernel(ScaledSums args) {
  const int64_t column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kColumns;
  if (column >= args.num_columns) return;
  float weight_scales[kColumns], bias[kColumns] = {};
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    weight_scales[i] = args.weight_scales == nullptr
                           ? 1.0f
                           : args.weight_scales[args.weight_scale_per_row ? column + i : 0];
  }
  if (args.bias != nullptr) {
    if (args.bias_element == Element::kFloat32) {
      load_bias<float>(args.bias, column, bias);
    } else {
      load_bias<Y>(args.bias, column, bias);
    }
  }
  for (int64_t row = blockIdx.y; row < args.num_rows; row += gridDim.y) {
    const float x_scale =
        args.x_scales == nullptr ? 1.0f : args.x_scales[args.x_scale_per_row ? row : 0];
    const auto sums = *reinterpret_cast<const Pack<float, kColumns>*>(
        args.sums + row * args.num_columns + column);
    Pack<Y, kColumns> y;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      y.element[i] = from_float<Y>(sums.element[i] * weight_scales[i] * x_scale + bias[i]);
    }
    *reinterpret_cast<Pack<Y, kColumns>*>(static_cast<Y*>(args.y) + row * args.y_stride + column) =
        y;
  }
}

// A tile of 32 x 32 by a block of 32 x 8 threads.
constexpr int kTransposed = 32, kTransposedRows = 8;

__global__ void transpose_scales_kernel(
    const float* scales, float* transposed, int64_t num_rows, int64_t num_groups, int64_t stride) {
  __shared__ float tile[kTransposed][kTransposed + 1];
  const int64_t row = int64_t{blockIdx.x} * kTransposed, group = int64_t{blockIdx.y} * kTransposed;
  for (int i = threadIdx.y; i < kTransposed; i += kTransposedRows) {
    const bool exists = row + i < num_rows && group + threadIdx.x < num_groups;
    tile[i][threadIdx.x] = exists ? scales[(row + i) * num_groups + group + threadIdx.x] : 0.0f;
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kTransposed; i += kTransposedRows) {
    if (group + i < num_groups && row + threadIdx.x < num_rows) {
      transposed[(group + i) * stride + row + threadIdx.x] = tile[threadIdx.x][i];
    }
  }
}

__global__ void repeat_scale_kernel(const float* scale, float* repeated, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) repeated[i] = scale == nullptr ? 1.0f : *scale;
}

}  // namespace

void expand_float8_cuda(const Float8Expansion& args, void* queue) {
  const dim3 grid(blocks_of(args.size / 8), grid_rows(args.num_rows));
  dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    expand_kernel<T><<<grid, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("expand_float8");
}

void scale_sums_cuda(const ScaledSums& args, void* queue) {
  const dim3 grid(blocks_of(args.num_columns / kColumns), grid_rows(args.num_rows));
  dispatch_element(args.y_element, [&]<typename Y>(ElementTag<Y>) {
    scale_sums_kernel<Y><<<grid, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("scale_sums");
}

void transpose_scales_cuda(const float* scales,
                           float* transposed,
                           int64_t num_rows,
                           int64_t num_groups,
                           int64_t stride,
                           void* queue) {
  const dim3 grid(static_cast<unsigned>((num_rows + kTransposed - 1) / kTransposed),
                  static_cast<unsigned>((num_groups + kTransposed - 1) / kTransposed));
  transpose_scales_kernel<<<grid,
                            dim3(kTransposed, kTransposedRows),
                            0,
                            static_cast<gpuStream_t>(queue)>>>(
      scales, transposed, num_rows, num_groups, stride);
  check_gpu_launch("transpose_scales");
}

void repeat_scale_cuda(const float* scale, float* repeated, int64_t count, void* queue) {
  repeat_scale_kernel<<<blocks_of(count), kThreads, 0, static_cast<gpuStream_t>(queue)>>>(
      scale, repeated, count);
  check_gpu_launch("repeat_scale");
}

}  // namespace atom::ops
