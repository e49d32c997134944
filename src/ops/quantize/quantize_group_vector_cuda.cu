// FP8 in groups of 128: a group lies in the registers of neighboring lanes, which find its scale
// without the rest of the block.
#include <algorithm>

#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/quantize/quantize_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kThreads = 256;

// Vector i of all rows is that of thread i: whole groups, whose lanes are of one row. With
// `is_for_few` first without elements: what else ran has driven the instructions out of the caches,
// and they come back while the kernel before this one ends.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_group_vector_kernel(const __grid_constant__ QuantizeArgs args,
                                 uint32_t num_vectors,
                                 bool is_for_few) {
  constexpr int kLength = Vector<T>::kLength;
  allow_next_grid();
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  const auto in_row = static_cast<uint32_t>(args.size / kLength);
  const int64_t row = index / in_row, first = index % in_row * kLength;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride + first;
  float* group_scale = args.scales + row * args.num_groups() + first / kQuantGroupSize;
  uint8_t* values = args.values + row * args.values_stride + first;
#pragma unroll 1
  for (int pass = is_for_few ? 0 : 1; pass < 2; ++pass) {
    const bool exists = pass == 1 && index < num_vectors;
    if (pass == 1) wait_for_previous_grid();
    const uint4 vectors[1] = {exists ? load_bits(x) : uint4{}};
    quantize_groups<T>(
        vectors,
        [&](int, float scale) {
          if (exists) *group_scale = scale;
        },
        [&](int, const Pack<Float8, kLength>& codes) {
          if (exists) *reinterpret_cast<Pack<Float8, kLength>*>(values) = codes;
        });
  }
}

// Of so many rows that their vectors have numbers of 32 bits.
template <typename T>
void launch(const QuantizeArgs& args, int64_t num_rows, int64_t in_row, gpuStream_t stream) {
  const int64_t vectors = num_rows * in_row, blocks = (vectors + kThreads - 1) / kThreads;
  // What went wrong is kept as the last error.
  (void)device::launch(&quantize_group_vector_kernel<T>,
                       dim3(static_cast<unsigned>(blocks)),
                       dim3(kThreads),
                       0,
                       stream,
                       num_rows < kManyRows,
                       args,
                       static_cast<uint32_t>(vectors),
                       num_rows < kManyRows);
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
    constexpr int64_t kMostVectors = int64_t{1} << 31;
    const int64_t in_row = args.size / Vector<T>::kLength, at_once = kMostVectors / in_row;
    for (int64_t row = 0; row < num_rows; row += at_once) {
      QuantizeArgs part = args;
      part.x = static_cast<const T*>(args.x) + row * args.x_stride;
      part.values += row * args.values_stride;
      part.scales += row * args.num_groups();
      launch<T>(part, std::min(at_once, num_rows - row), in_row, stream);
    }
  });
  check_gpu_launch("quantize");
}

}  // namespace atom::ops
