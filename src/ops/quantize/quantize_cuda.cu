// A block for each row: any size and stride, in two passes.
#include "ops/device/dispatch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/quantize/quantize_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::to_float;

constexpr int kThreads = 256;

template <typename T>
__global__ void quantize_kernel(QuantizeArgs args) {
  __shared__ float scratch[device::kWarpSize];
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  float scale = 0;
  if (args.scales != nullptr) {
    float largest = 0;
    for (int64_t k = threadIdx.x; k < args.size; k += kThreads) {
      largest = fmaxf(largest, fabsf(to_float(x[k])));  // drops NaN
    }
    scale = scale_of_largest(device::reduce_block(largest, scratch, device::Largest()));
    if (threadIdx.x == 0) args.scales[row] = scale;
  } else {
    scale = *args.static_scale;
  }
  uint8_t* values = args.values + row * args.values_stride;
  for (int64_t k = threadIdx.x; k < args.size; k += kThreads) {
    values[k] = float8_code(to_float(x[k]), scale).bits;
  }
}

__global__ void find_nan_kernel(const uint4* codes, int64_t count, uint32_t* found) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  uint32_t any = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 four = codes[i];
    for (const uint32_t word : {four.x, four.y, four.z, four.w}) {
      // NaN is the one code whose lower 7 bits carry into the eighth.
      any |= ((word & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
    }
  }
  if (any != 0) *found = 1;
}

}  // namespace

void quantize_cuda(const QuantizeArgs& args, int64_t num_rows, void* queue) {
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    quantize_kernel<T>
        <<<static_cast<unsigned>(num_rows), kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("quantize");
}

void find_nan_cuda(const void* codes, int64_t num_vectors, uint32_t* found, void* queue) {
  constexpr int64_t kMaxBlocks = 2048;
  const int64_t blocks = (num_vectors + kThreads - 1) / kThreads;
  find_nan_kernel<<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks),
                    kThreads,
                    0,
                    static_cast<gpuStream_t>(queue)>>>(
      static_cast<const uint4*>(codes), num_vectors, found);
  check_gpu_launch("find_nan");
}

}  // namespace atom::ops
