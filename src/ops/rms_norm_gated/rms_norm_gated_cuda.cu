#include "ops/device/dispatch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/rms_norm_gated/rms_norm_gated_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsPerBlock = kThreads / device::kWarpSize;

// A warp per row.
template <typename T>
__global__ void rms_norm_gated_kernel(RmsNormGatedArgs args, int64_t num_rows) {
  const int lane = threadIdx.x % device::kWarpSize;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / device::kWarpSize;
  if (row >= num_rows) return;
  const int64_t token = row / args.num_heads, head = row % args.num_heads;
  const int64_t first = head * args.size;
  const T* x = static_cast<const T*>(args.x) + token * args.x_stride + first;
  const T* gate = static_cast<const T*>(args.gate) + token * args.gate_stride + first;
  T* out = static_cast<T*>(args.out) + token * args.out_stride + first;
  float squares = 0;
  for (int64_t i = lane; i < args.size; i += device::kWarpSize) {
    const float value = device::to_float(x[i]);
    squares = fmaf(value, value, squares);
  }
  squares = device::reduce_lanes(squares, device::kWarpSize, device::Sum{});
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.size) + args.eps);
  for (int64_t i = lane; i < args.size; i += device::kWarpSize) {
    const float z = device::to_float(gate[i]);
    const float y = device::to_float(x[i]) * scale * args.weight[i];
    out[i] = device::from_float<T>(y * (z / (1.0f + expf(-z))));
  }
}

}  // namespace

void rms_norm_gated_cuda(const RmsNormGatedArgs& args, int64_t num_rows, void* queue) {
  const unsigned blocks = static_cast<unsigned>((num_rows + kRowsPerBlock - 1) / kRowsPerBlock);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    rms_norm_gated_kernel<T>
        <<<blocks, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args, num_rows);
  });
  check_gpu_launch("rms_norm_gated");
}

}  // namespace atom::ops
