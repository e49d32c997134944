// A block for each row, which it holds in registers: memory is read and written once, 16 bytes at a
// time.
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quant_fp8/quant_fp8_device.cuh"
#include "ops/quant_fp8/quant_fp8_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kMaxThreads = 512;
constexpr int kMaxVectors = 8;  // of a thread
// With fewer rows than this a row has as many threads as it can, with more each thread several
// vectors, so that more bytes are on their way at once.
constexpr int64_t kSomeRows = 512;

template <typename T, int kVectors>
__global__ void __launch_bounds__(kMaxThreads) quant_fp8_vector_kernel(QuantFp8Args args) {
  __shared__ float scratch[kWarpSize];
  constexpr int kLength = Vector<T>::kLength;
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  const auto first_of = [](int v) {
    return (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kLength;
  };
  allow_next_grid();
  wait_for_previous_grid();
  uint4 vector[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (first_of(v) < args.size) vector[v] = load_bits(x + first_of(v));
  }
  float scale = 0;
  if (args.scales != nullptr) {
    float largest = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (first_of(v) >= args.size) continue;
      float values[kLength];
      to_floats<T>(vector[v], values);
#pragma unroll
      for (int i = 0; i < kLength; ++i) largest = fmaxf(largest, fabsf(values[i]));  // drops NaN
    }
    scale = scale_of_largest(reduce_block(largest, scratch, Largest()));
    if (threadIdx.x == 0) args.scales[row] = scale;
  } else {
    scale = *args.static_scale;
  }
  const Fp8Quantiser quantise(scale, args.scales != nullptr);
  uint8_t* values = args.values + row * args.values_stride;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (first_of(v) >= args.size) continue;
    float x[kLength];
    to_floats<T>(vector[v], x);
    *reinterpret_cast<Pack<Float8, kLength>*>(values + first_of(v)) = quantise(x);
  }
}

template <typename T, int kVectors>
void launch(const QuantFp8Args& args, int64_t num_rows, int64_t num_vectors, gpuStream_t stream) {
  const int64_t lanes = (num_vectors + kVectors - 1) / kVectors;
  const int64_t threads = (lanes + kWarpSize - 1) / kWarpSize * kWarpSize;
  // What went wrong is kept as the last error.
  (void)device::launch(&quant_fp8_vector_kernel<T, kVectors>,
                       dim3(static_cast<unsigned>(num_rows)),
                       dim3(static_cast<unsigned>(threads)),
                       0,
                       stream,
                       num_rows < kManyRows,
                       args);
}

int64_t element_size(Element element) {
  return element == Element::kFloat32 ? 4 : 2;
}

bool is_multiple(int64_t value, int64_t unit) {
  return value % unit == 0;
}

}  // namespace

bool fits_quant_fp8_vector(const QuantFp8Args& args) {
  const int64_t length = kVectorSize / element_size(args.element);
  return is_multiple(args.size, length) && is_multiple(args.x_stride, length) &&
         is_multiple(args.values_stride, length) &&
         is_multiple(reinterpret_cast<uintptr_t>(args.x), kVectorSize) &&
         is_multiple(reinterpret_cast<uintptr_t>(args.values), length) &&
         args.size <= length * kMaxThreads * kMaxVectors;
}

void quant_fp8_vector_cuda(const QuantFp8Args& args, int64_t num_rows, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    const int64_t vectors = args.size / Vector<T>::kLength;
    if (vectors <= (num_rows < kSomeRows ? kMaxThreads : kMaxThreads / 2)) {
      launch<T, 1>(args, num_rows, vectors, stream);
    } else if (vectors <= 2 * kMaxThreads) {
      launch<T, 2>(args, num_rows, vectors, stream);
    } else if (vectors <= 4 * kMaxThreads) {
      launch<T, 4>(args, num_rows, vectors, stream);
    } else {
      launch<T, kMaxVectors>(args, num_rows, vectors, stream);
    }
  });
  check_gpu_launch("quant_fp8");
}

}  // namespace atom::ops
