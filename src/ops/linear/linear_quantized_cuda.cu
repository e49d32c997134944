// One thread for each element of y, tiles of both factors expanded in shared memory. Correct for
// every format; fast for none.
#include "ops/device/elements.cuh"
#include "ops/linear/linear_quantized_cuda.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kTile = 16;
constexpr int64_t kMaxGridRows = 65535;

__device__ float float_at(const void* data, Element element, int64_t index) {
  switch (element) {
    case Element::kFloat32:
      return static_cast<const float*>(data)[index];
    case Element::kFloat16:
      return device::to_float(static_cast<const device::Half*>(data)[index]);
    default:
      return device::to_float(static_cast<const device::BFloat16*>(data)[index]);
  }
}

// The value of 4 bits.
__device__ float four_bits(QuantDType dtype, int code) {
  if (dtype == QuantDType::kInt4) return static_cast<float>(code - 8);
  const int magnitude = code & 7;
  const float value = magnitude < 2
                          ? 0.5f * static_cast<float>(magnitude)
                          : __int_as_float((126 + magnitude / 2) << 23 | (magnitude & 1) << 22);
  return (code & 8) != 0 ? -value : value;
}

__device__ float value_at(const PackedValues& values, int64_t row, int64_t k) {
  const int64_t begin = row * values.stride;
  if (!values.is_quantized) return float_at(values.data, values.element, begin + k);
  const auto* bytes = static_cast<const uint8_t*>(values.data) + begin;
  switch (values.dtype) {
    case QuantDType::kFloat8E4M3:
      return device::to_float(device::Float8{bytes[k]});
    case QuantDType::kInt8:
      return static_cast<float>(static_cast<int8_t>(bytes[k]));
    default:
      return four_bits(values.dtype, bytes[k / 2] >> (k % 2 * 4) & 15);
  }
}

__device__ float scale_at(const void* scales, bool is_e8m0, int64_t index) {
  if (scales == nullptr) return 1.0f;
  if (!is_e8m0) return static_cast<const float*>(scales)[index];
  const int exponent = static_cast<const uint8_t*>(scales)[index];
  return exponent == 0 ? __int_as_float(0x00400000) : __int_as_float(exponent << 23);
}

// The scale of one group, or of the finished sum (group -1).
__device__ float scale_of(const LinearQuantizedArgs& args,
                          int64_t row,
                          int64_t column,
                          int64_t group) {
  const int64_t groups =
      args.group_size > 0 ? (args.in_features + args.group_size - 1) / args.group_size : 0;
  float scale = 1.0f;
  if (group >= 0) {
    scale = scale_at(
        args.weight_scales, args.weight_scales_are_e8m0, column / args.scale_rows * groups + group);
    if (args.x_scale_per_group) {
      scale *= scale_at(args.x_scales, args.x_scales_are_e8m0, row * groups + group);
    }
    return scale;
  }
  if (args.group_size == 0) {
    scale = scale_at(args.weight_scales, false, args.weight_scale_per_row ? column : 0);
  }
  if (!args.x_scale_per_group) {
    scale *= scale_at(args.x_scales, false, args.x_scale_per_row ? row : 0);
  }
  return scale;
}

__device__ void store(const LinearQuantizedArgs& args, int64_t row, int64_t column, float value) {
  const int64_t index = row * args.y_stride + column;
  switch (args.y_element) {
    case Element::kFloat32:
      static_cast<float*>(args.y)[index] = value;
      return;
    case Element::kFloat16:
      static_cast<device::Half*>(args.y)[index] = device::from_float<device::Half>(value);
      return;
    default:
      static_cast<device::BFloat16*>(args.y)[index] = device::from_float<device::BFloat16>(value);
  }
}

__global__ void linear_quantized_kernel(LinearQuantizedArgs args, int64_t first_row) {
  __shared__ float x_tile[kTile][kTile];
  __shared__ float weight_tile[kTile][kTile + 1];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int64_t row = first_row + int64_t{blockIdx.y} * kTile + ty;
  const int64_t column = int64_t{blockIdx.x} * kTile + tx;
  const int64_t weight_row = int64_t{blockIdx.x} * kTile + ty;
  const bool exists = row < args.num_rows && column < args.out_features;
  float total = 0, sum = 0;
  for (int64_t begin = 0; begin < args.in_features; begin += kTile) {
    const int64_t k = begin + tx;
    const bool in_k = k < args.in_features;
    x_tile[ty][tx] = in_k && row < args.num_rows ? value_at(args.x, row, k) : 0.0f;
    weight_tile[ty][tx] =
        in_k && weight_row < args.out_features ? value_at(args.weight, weight_row, k) : 0.0f;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += x_tile[ty][i] * weight_tile[tx][i];
    __syncthreads();
    const int64_t end = begin + kTile;
    if (args.group_size > 0 && exists && (end % args.group_size == 0 || end >= args.in_features)) {
      total += sum * scale_of(args, row, column, begin / args.group_size);
      sum = 0;
    }
  }
  if (!exists) return;
  const float result = (args.group_size > 0 ? total : sum) * scale_of(args, row, column, -1);
  const float bias = args.bias == nullptr ? 0.0f : float_at(args.bias, args.bias_element, column);
  store(args, row, column, result + bias);
}

}  // namespace

void linear_quantized_cuda(const LinearQuantizedArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  const auto columns = static_cast<unsigned>((args.out_features + kTile - 1) / kTile);
  for (int64_t first = 0; first < args.num_rows; first += kMaxGridRows * kTile) {
    const int64_t rows = (args.num_rows - first + kTile - 1) / kTile;
    const dim3 grid(columns, static_cast<unsigned>(rows < kMaxGridRows ? rows : kMaxGridRows));
    linear_quantized_kernel<<<grid, dim3(kTile, kTile), 0, stream>>>(args, first);
  }
  check_gpu_launch("linear");
}

}  // namespace atom::ops
