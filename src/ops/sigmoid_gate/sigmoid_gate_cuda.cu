#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/sigmoid_gate/sigmoid_gate_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

// kLength elements of a row.
template <typename T, int kLength>
__device__ void gate_elements(const SigmoidGateArgs& args, int64_t row, int64_t first) {
  using Elements = device::Pack<T, kLength>;
  const int64_t token = row / args.num_heads, head = row % args.num_heads;
  const T* x = static_cast<const T*>(args.x) + token * args.x_strides[0] + head * args.x_strides[1];
  const T* gate =
      static_cast<const T*>(args.gate) + token * args.gate_strides[0] + head * args.gate_strides[1];
  T* out = static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1];
  const auto values = *reinterpret_cast<const Elements*>(x + first);
  Elements gates, sums, result;
  if (!args.gate_per_row) gates = *reinterpret_cast<const Elements*>(gate + first);
  if (args.adds) sums = *reinterpret_cast<const Elements*>(out + first);
  const T of_row = gate[0];
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    const float z = device::to_float(args.gate_per_row ? of_row : gates.element[i]);
    const float gated = device::to_float(values.element[i]) / (1.0f + expf(-z));
    result.element[i] =
        device::from_float<T>(args.adds ? device::to_float(sums.element[i]) + gated : gated);
  }
  *reinterpret_cast<Elements*>(out + first) = result;
}

// A thread for each kLength elements of all rows.
template <typename T, int kLength>
__global__ void sigmoid_gate_kernel(SigmoidGateArgs args, int64_t num_rows) {
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t per_row = args.size / kLength, row = index / per_row;
  if (row < num_rows) gate_elements<T, kLength>(args, row, index % per_row * kLength);
}

bool is_aligned(const void* data, const int64_t (&strides)[2], int64_t length) {
  return reinterpret_cast<uintptr_t>(data) % device::kVectorSize == 0 && strides[0] % length == 0 &&
         strides[1] % length == 0;
}

bool fits_vectors(const SigmoidGateArgs& args, int64_t length) {
  return args.size % length == 0 && is_aligned(args.x, args.x_strides, length) &&
         is_aligned(args.out, args.out_strides, length) &&
         (args.gate_per_row || is_aligned(args.gate, args.gate_strides, length));
}

template <typename T, int kLength>
void launch(const SigmoidGateArgs& args, int64_t num_rows, gpuStream_t stream) {
  const int64_t threads = num_rows * (args.size / kLength);
  (void)device::launch(sigmoid_gate_kernel<T, kLength>,
                       dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
                       dim3(kThreads),
                       0,
                       stream,
                       true,
                       args,
                       num_rows);
}

}  // namespace

void sigmoid_gate_cuda(const SigmoidGateArgs& args, int64_t num_rows, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    constexpr int kLength = device::Vector<T>::kLength;
    if (fits_vectors(args, kLength)) {
      launch<T, kLength>(args, num_rows, stream);
    } else {
      launch<T, 1>(args, num_rows, stream);
    }
  });
  check_gpu_launch("sigmoid_gate");
}

}  // namespace atom::ops
