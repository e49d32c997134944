// A block for each row, which it holds in registers: memory is read and written once, 16 bytes at a
// time.
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/quantize/quantize_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kMaxThreads = 512;
constexpr int kMaxVectors = 8;  // of a thread
// With fewer rows than this a row has as many threads as it can, with more each thread several
// vectors, so that more bytes are on their way at once and fewer threads wait for each other.
constexpr int64_t kSomeRows = 512;
// For short and for longer rows then.
constexpr int kShortThreads = 128, kShortVectors = 4, kLongThreads = 224;

template <typename T, int kVectors, int kThreads, int kBlocks>
__global__ void ATOM_LAUNCH_BOUNDS(kThreads, kBlocks) quantize_vector_kernel(QuantizeArgs args) {
  __shared__ float scratch[kWarpSize];
  constexpr int kLength = Vector<T>::kLength;
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  const auto first_of = [](int v) {
    return (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kLength;
  };
  allow_next_grid();
  wait_for_previous_grid();
  // Where the row has ended everything is 0, which is no row's largest magnitude.
  uint4 vectors[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    vectors[v] = first_of(v) < args.size ? load_bits(x + first_of(v)) : uint4{};
  }
  uint8_t* values = args.values + row * args.values_stride;
  const auto store = [&](int v, const Pack<Float8, kLength>& codes) {
    if (first_of(v) >= args.size) return;
    *reinterpret_cast<Pack<Float8, kLength>*>(values + first_of(v)) = codes;
  };
  if (args.scales == nullptr) {
    quantize_vectors<T, false>(vectors, *args.static_scale, store);
    return;
  }
  LargestMagnitude<T> largest;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) largest.see(vectors[v]);
  const float scale = scale_of_largest(reduce_block(largest.value(), scratch, Largest()));
  if (threadIdx.x == 0) args.scales[row] = scale;
  quantize_vectors<T, true>(vectors, scale, store);
}

template <typename T, int kVectors, int kThreads = kMaxThreads, int kBlocks = 1>
void launch(const QuantizeArgs& args, int64_t num_rows, int64_t num_vectors, gpuStream_t stream) {
  const int64_t lanes = (num_vectors + kVectors - 1) / kVectors;
  const int64_t threads = (lanes + kWarpSize - 1) / kWarpSize * kWarpSize;
  // What went wrong is kept as the last error.
  (void)device::launch(&quantize_vector_kernel<T, kVectors, kThreads, kBlocks>,
                       dim3(static_cast<unsigned>(num_rows)),
                       dim3(static_cast<unsigned>(threads)),
                       0,
                       stream,
                       num_rows < kManyRows,
                       args);
}

bool is_multiple(int64_t value, int64_t unit) {
  return value % unit == 0;
}

}  // namespace

bool fits_quantize_vector(const QuantizeArgs& args) {
  const int64_t length = kVectorSize / bytes_of(args.element);
  return is_multiple(args.size, length) && is_multiple(args.x_stride, length) &&
         is_multiple(args.values_stride, length) &&
         is_multiple(reinterpret_cast<uintptr_t>(args.x), kVectorSize) &&
         is_multiple(reinterpret_cast<uintptr_t>(args.values), length) &&
         args.size <= length * kMaxThreads * kMaxVectors;
}

void quantize_vector_cuda(const QuantizeArgs& args, int64_t num_rows, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    const int64_t vectors = args.size / Vector<T>::kLength;
    const bool many = num_rows >= kSomeRows;
    if (many && vectors <= kShortThreads * kShortVectors) {
      launch<T, kShortVectors, kShortThreads, 10>(args, num_rows, vectors, stream);
    } else if (many && vectors <= kLongThreads * kMaxVectors) {
      launch<T, kMaxVectors, kLongThreads, 4>(args, num_rows, vectors, stream);
    } else if (vectors <= kMaxThreads) {
      launch<T, 1>(args, num_rows, vectors, stream);
    } else if (vectors <= 2 * kMaxThreads) {
      launch<T, 2>(args, num_rows, vectors, stream);
    } else if (vectors <= 4 * kMaxThreads) {
      launch<T, 4>(args, num_rows, vectors, stream);
    } else {
      launch<T, kMaxVectors>(args, num_rows, vectors, stream);
    }
  });
  check_gpu_launch("quantize");
}

}  // namespace atom::ops
