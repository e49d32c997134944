#include <algorithm>

#include "ops/add/add_kernels.h"
#include "ops/device/dispatch.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 65536;

template <typename T>
__global__ void add_kernel(AddArgs args, int64_t num_elements) {
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < num_elements; i += step) {
    out[i] = device::from_float<T>(device::to_float(out[i]) + device::to_float(x[i]));
  }
}

}  // namespace

void add_cuda(const AddArgs& args, int64_t num_elements, void* queue) {
  const int64_t num_blocks = std::min((num_elements + kThreads - 1) / kThreads, kMaxBlocks);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    add_kernel<T>
        <<<static_cast<unsigned>(num_blocks), kThreads, 0, static_cast<gpuStream_t>(queue)>>>(
            args, num_elements);
  });
  check_gpu_launch("add");
}

}  // namespace atom::ops
