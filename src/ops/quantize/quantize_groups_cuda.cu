// A block for each group of a row that shares a scale: every format, any size and stride.
#include "ops/device/dispatch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/quantize/quantize_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

// As e8m0_scale_for_float4 (tensor/float4.h).
__device__ uint8_t float4_exponent(float largest, bool rounds_even) {
  int exponent = 0;
  if (rounds_even) {
    exponent = static_cast<int>((__float_as_uint(largest) + 0x200000u) >> 23) - 2;
  } else {
    const uint32_t bits = __float_as_uint(largest / 6.0f);
    exponent = static_cast<int>(bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0);
  }
  return static_cast<uint8_t>(min(max(exponent, 0), 254));
}

// As float4_from_float.
__device__ uint8_t float4_code(float value) {
  const float m = fabsf(value);
  const int code = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) +
                   (m >= 3.5f) + (m > 5.0f);
  return static_cast<uint8_t>(code | (__float_as_uint(value) >> 31) << 3);
}

// What is not a number becomes 127.
__device__ uint8_t int8_code(float value) {
  return static_cast<uint8_t>(static_cast<int>(rintf(fmaxf(fminf(value, 127.0f), -128.0f))));
}

template <typename T>
__global__ void quantize_groups_kernel(QuantizeArgs args) {
  __shared__ float scratch[2][device::kWarpSize];
  const int64_t row = blockIdx.x, group = blockIdx.y;
  const int64_t begin = group * args.group_size;
  const int64_t size = min(args.group_size, args.size - begin);
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride + begin;
  const bool is_float8 = args.dtype == QuantDType::kFloat8E4M3;
  float largest = 0, not_finite = 0;
  for (int64_t k = threadIdx.x; k < size; k += kThreads) {
    const float value = device::to_float(x[k]);
    largest = fmaxf(largest, fabsf(value));  // drops NaN
    if (!isfinite(value)) not_finite = 1;
  }
  largest = device::reduce_block(largest, scratch[0], device::Largest());
  not_finite = device::reduce_block(not_finite, scratch[1], device::Largest());
  uint8_t* values = args.values + row * args.values_stride;
  const int64_t scale_index = row * args.num_groups() + group;
  if (args.dtype == QuantDType::kFloat4E2M1) {
    const uint8_t exponent =
        not_finite > 0 ? 0xff : float4_exponent(largest, args.rounds_exponents);
    if (threadIdx.x == 0) args.exponents[scale_index] = exponent;
    const float factor = not_finite > 0 ? 0.0f : ldexpf(1.0f, 127 - exponent);
    for (int64_t k = 2 * threadIdx.x; k < size; k += 2 * kThreads) {
      const uint8_t low = float4_code(device::to_float(x[k]) * factor);
      const uint8_t high = float4_code(device::to_float(x[k + 1]) * factor);
      values[(begin + k) / 2] = static_cast<uint8_t>(low | high << 4);
    }
    return;
  }
  float scale = 0;
  if (args.scales == nullptr) {
    scale = *args.static_scale;
  } else {
    scale = largest / (is_float8 ? device::kFloat8Max : 127.0f);
    if (!(scale > 0.0f)) scale = 1.0f;
    if (!is_float8 && not_finite > 0) scale = NAN;
    if (threadIdx.x == 0) args.scales[scale_index] = scale;
  }
  for (int64_t k = threadIdx.x; k < size; k += kThreads) {
    const float value = device::to_float(x[k]);
    values[begin + k] = is_float8 ? float8_code(value, scale).bits : int8_code(value / scale);
  }
}

}  // namespace

void quantize_groups_cuda(const QuantizeArgs& args, int64_t num_rows, void* queue) {
  const dim3 grid(static_cast<unsigned>(num_rows), static_cast<unsigned>(args.num_groups()));
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    quantize_groups_kernel<T><<<grid, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("quantize");
}

}  // namespace atom::ops
