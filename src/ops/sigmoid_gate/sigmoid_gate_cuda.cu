#include "ops/device/dispatch.cuh"
#include "ops/sigmoid_gate/sigmoid_gate_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

// A block per row.
template <typename T>
__global__ void sigmoid_gate_kernel(SigmoidGateArgs args) {
  const int64_t token = blockIdx.x / args.num_heads, head = blockIdx.x % args.num_heads;
  const T* x = static_cast<const T*>(args.x) + token * args.x_strides[0] + head * args.x_strides[1];
  const T* gate =
      static_cast<const T*>(args.gate) + token * args.gate_strides[0] + head * args.gate_strides[1];
  T* out = static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1];
  for (int64_t i = threadIdx.x; i < args.size; i += kThreads) {
    const float z = device::to_float(gate[args.gate_per_row ? 0 : i]);
    const float gated = device::to_float(x[i]) / (1.0f + expf(-z));
    out[i] = device::from_float<T>(args.adds ? device::to_float(out[i]) + gated : gated);
  }
}

}  // namespace

void sigmoid_gate_cuda(const SigmoidGateArgs& args, int64_t num_rows, void* queue) {
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    sigmoid_gate_kernel<T>
        <<<static_cast<unsigned>(num_rows), kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("sigmoid_gate");
}

}  // namespace atom::ops
