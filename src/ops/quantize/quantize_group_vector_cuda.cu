// FP8 in groups of 128: a group lies in the registers of neighboring lanes, which find its scale
// without the rest of the block.
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/quantize/quantize_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kThreads = 256;

// Vector i of all rows is that of thread i: whole groups, whose lanes are of one row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_group_vector_kernel(QuantizeArgs args, int64_t num_vectors) {
  constexpr int kLength = Vector<T>::kLength;
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool exists = index < num_vectors;
  const int64_t in_row = args.size / kLength;
  const int64_t row = exists ? index / in_row : 0, first = exists ? index % in_row * kLength : 0;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride + first;
  const uint4 vectors[1] = {exists ? load_bits(x) : uint4{}};
  quantize_groups<T>(
      vectors,
      [&](int, float scale) {
        if (exists) args.scales[row * args.num_groups() + first / kQuantGroupSize] = scale;
      },
      [&](int, const Pack<Float8, kLength>& codes) {
        uint8_t* values = args.values + row * args.values_stride + first;
        if (exists) *reinterpret_cast<Pack<Float8, kLength>*>(values) = codes;
      });
}

bool is_multiple(int64_t value, int64_t unit) {
  return value % unit == 0;
}

}  // namespace

bool fits_quantize_group_vector(const QuantizeArgs& args) {
  const int64_t length = kVectorSize / bytes_of(args.element);
  return args.dtype == QuantDType::kFloat8E4M3 && args.group_size == kQuantGroupSize &&
         args.scales != nullptr && is_multiple(args.size, kQuantGroupSize) &&
         is_multiple(args.x_stride, length) && is_multiple(args.values_stride, length) &&
         is_multiple(reinterpret_cast<uintptr_t>(args.x), kVectorSize) &&
         is_multiple(reinterpret_cast<uintptr_t>(args.values), length);
}

void quantize_group_vector_cuda(const QuantizeArgs& args, int64_t num_rows, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    const int64_t vectors = num_rows * (args.size / Vector<T>::kLength);
    const int64_t blocks = (vectors + kThreads - 1) / kThreads;
    // What went wrong is kept as the last error.
    (void)device::launch(&quantize_group_vector_kernel<T>,
                         dim3(static_cast<unsigned>(blocks)),
                         dim3(kThreads),
                         0,
                         stream,
                         num_rows < kManyRows,
                         args,
                         vectors);
  });
  check_gpu_launch("quantize");
}

}  // namespace atom::ops
