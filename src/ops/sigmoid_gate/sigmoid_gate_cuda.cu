#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/silu.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/sigmoid_gate/sigmoid_gate_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

// Where a thread's kLength elements are. A step has fewer than 2^32 of them: divisions of 64 bits
// would take longer than the rest.
template <int kLength>
struct Place {
  int64_t token, head, first;
  bool exists;

  __device__ Place(const SigmoidGateArgs& args, uint32_t num_rows) {
    const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
    const auto per_row = static_cast<uint32_t>(args.size / kLength);
    const auto num_heads = static_cast<uint32_t>(args.num_heads);
    const uint32_t row = index / per_row;
    exists = row < num_rows;
    token = row / num_heads;
    head = row - row / num_heads * num_heads;
    first = (index - row * per_row) * kLength;
  }
};

// kLength elements of a row's result.
template <typename T, int kLength>
__device__ device::Pack<T, kLength> gated_elements(const SigmoidGateArgs& args,
                                                   const Place<kLength>& place) {
  using Elements = device::Pack<T, kLength>;
  const auto& [token, head, first, exists] = place;
  const T* x = static_cast<const T*>(args.x) + token * args.x_strides[0] + head * args.x_strides[1];
  const T* gate =
      static_cast<const T*>(args.gate) + token * args.gate_strides[0] + head * args.gate_strides[1];
  const T* out =
      static_cast<const T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1];
  const auto values = *reinterpret_cast<const Elements*>(x + first);
  Elements gates, sums, result;
  if (!args.gate_per_row) gates = *reinterpret_cast<const Elements*>(gate + first);
  if (args.adds) sums = *reinterpret_cast<const Elements*>(out + first);
  const T of_row = gate[0];
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    const float z = device::to_float(args.gate_per_row ? of_row : gates.element[i]);
    const float gated =
        device::sigmoid_gated<device::kSiluFor<T>>(device::to_float(values.element[i]), z);
    result.element[i] =
        device::from_float<T>(args.adds ? device::to_float(sums.element[i]) + gated : gated);
  }
  return result;
}

// A thread for each kLength elements of all rows.
template <typename T, int kLength>
__global__ void sigmoid_gate_kernel(SigmoidGateArgs args, uint32_t num_rows) {
  device::allow_next_grid();
  const Place<kLength> place(args, num_rows);
  device::wait_for_previous_grid();
  if (!place.exists) return;
  const auto result = gated_elements<T, kLength>(args, place);
  T* out = static_cast<T*>(args.out) + place.token * args.out_strides[0] +
           place.head * args.out_strides[1];
  *reinterpret_cast<device::Pack<T, kLength>*>(out + place.first) = result;
}

// The same, of codes in groups of 128.
template <typename T>
__global__ void sigmoid_gate_codes_kernel(SigmoidGateArgs args,
                                          QuantizeArgs codes,
                                          int64_t num_groups,
                                          uint32_t num_rows) {
  constexpr int kLength = device::Vector<T>::kLength;
  device::allow_next_grid();
  const Place<kLength> place(args, num_rows);
  device::wait_for_previous_grid();
  uint4 vectors[1] = {};
  if (place.exists) {
    const auto result = gated_elements<T, kLength>(args, place);
    memcpy(&vectors[0], &result, sizeof result);
  }
  const int64_t column = place.head * args.size + place.first;
  quantize_groups<T>(
      vectors,
      [&](int, float scale) {
        if (!place.exists) return;
        codes.scales[place.token * num_groups + column / kQuantGroupSize] = scale;
      },
      [&](int, const device::Pack<device::Float8, kLength>& packed) {
        if (!place.exists) return;
        uint8_t* values = codes.values + place.token * codes.values_stride + column;
        *reinterpret_cast<device::Pack<device::Float8, kLength>*>(values) = packed;
      });
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

unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <typename T, int kLength>
void launch(const SigmoidGateArgs& args, int64_t num_rows, gpuStream_t stream) {
  (void)device::launch(sigmoid_gate_kernel<T, kLength>,
                       dim3(blocks_of(num_rows * (args.size / kLength))),
                       dim3(kThreads),
                       0,
                       stream,
                       true,
                       args,
                       static_cast<uint32_t>(num_rows));
}

template <typename T>
void launch_codes(const SigmoidGateCall& call, int64_t num_rows, gpuStream_t stream) {
  (void)device::launch(sigmoid_gate_codes_kernel<T>,
                       dim3(blocks_of(num_rows * (call.gate.size / device::Vector<T>::kLength))),
                       dim3(kThreads),
                       0,
                       stream,
                       true,
                       call.gate,
                       call.codes,
                       call.codes.num_groups(),
                       static_cast<uint32_t>(num_rows));
}

}  // namespace

bool fits_sigmoid_gate_cuda(const SigmoidGateCall& call) {
  if (!call.quantizes()) return true;
  const QuantizeArgs& codes = call.codes;
  const int64_t length = device::kVectorSize / bytes_of(call.gate.element);
  return codes.is_float8() && codes.group_size == kQuantGroupSize && codes.scales != nullptr &&
         call.gate.size % kQuantGroupSize == 0 && !call.gate.adds &&
         fits_vectors(call.gate, length) && codes.values_stride % length == 0 &&
         reinterpret_cast<uintptr_t>(codes.values) % static_cast<uintptr_t>(length) == 0;
}

void sigmoid_gate_cuda(const SigmoidGateCall& call, int64_t num_rows, void* queue) {
  const SigmoidGateArgs& args = call.gate;
  const auto stream = static_cast<gpuStream_t>(queue);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    constexpr int kLength = device::Vector<T>::kLength;
    if (call.quantizes()) {
      launch_codes<T>(call, num_rows, stream);
    } else if (fits_vectors(args, kLength)) {
      launch<T, kLength>(args, num_rows, stream);
    } else {
      launch<T, 1>(args, num_rows, stream);
    }
  });
  check_gpu_launch("sigmoid_gate");
}

}  // namespace atom::ops
