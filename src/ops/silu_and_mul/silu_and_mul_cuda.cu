#include "ops/device/dispatch.cuh"
#include "ops/silu_and_mul/silu_and_mul_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::from_float;
using device::to_float;

constexpr int kThreads = 256;

template <typename T>
__global__ void silu_and_mul_kernel(SiluAndMulArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.size) return;
  const int64_t row = blockIdx.y;
  const T* gate = static_cast<const T*>(args.gate_up) + row * args.gate_up_stride;
  const float x = to_float(gate[i]);
  const float product = x / (1.0f + expf(-x)) * to_float(gate[args.size + i]);
  static_cast<T*>(args.out)[row * args.out_stride + i] = from_float<T>(product);
}

}  // namespace

void silu_and_mul_cuda(const SiluAndMulArgs& args, int64_t num_rows, void* queue) {
  constexpr int64_t kMaxGridRows = 65535;
  if (args.size == 0) return;
  const auto columns = static_cast<unsigned>((args.size + kThreads - 1) / kThreads);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    SiluAndMulArgs part = args;
    for (int64_t row = 0; row < num_rows; row += kMaxGridRows) {
      const int64_t rows = num_rows - row < kMaxGridRows ? num_rows - row : kMaxGridRows;
      part.gate_up = static_cast<const T*>(args.gate_up) + row * args.gate_up_stride;
      part.out = static_cast<T*>(args.out) + row * args.out_stride;
      silu_and_mul_kernel<T><<<dim3(columns, static_cast<unsigned>(rows)),
                               kThreads,
                               0,
                               static_cast<gpuStream_t>(queue)>>>(part);
    }
  });
  check_gpu_launch("silu_and_mul");
}

}  // namespace atom::ops
