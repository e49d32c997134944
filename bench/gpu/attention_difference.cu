#include "attention_difference.h"

#include "attention_case.h"

namespace atom::bench {
namespace {

// A warp for each row; `worst` takes the bits of the largest difference.
__global__ void compare_rows(const gpu_bfloat16* got,
                             const gpu_bfloat16* expected,
                             int64_t num_rows,
                             int row_size,
                             uint32_t* worst) {
  const int64_t row = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (row >= num_rows) {
    return;
  }
  float difference = 0;
  float norm = 0;
  for (int i = threadIdx.x % 32; i < row_size; i += 32) {
    const float a = __bfloat162float(got[row * row_size + i]);
    const float b = __bfloat162float(expected[row * row_size + i]);
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    difference += __shfl_xor_sync(0xffffffffu, difference, mask);
    norm += __shfl_xor_sync(0xffffffffu, norm, mask);
  }
  if (threadIdx.x % 32 == 0) {
    const float error = sqrtf(difference / norm);
    // Floats that are not negative are ordered as their bits.
    atomicMax(worst, __float_as_uint(error == error ? error : INFINITY));
  }
}

}  // namespace

double largest_row_difference(const void* got,
                              const void* expected,
                              int64_t num_rows,
                              int row_size) {
  constexpr int kThreads = 256;
  const DeviceBuffer worst(sizeof(float));
  check_gpu(ATOM_GPU(Memset)(worst.get(), 0, sizeof(float)), "clear");
  compare_rows<<<(num_rows * 32 + kThreads - 1) / kThreads, kThreads>>>(
      static_cast<const gpu_bfloat16*>(got),
      static_cast<const gpu_bfloat16*>(expected),
      num_rows,
      row_size,
      static_cast<uint32_t*>(worst.get()));
  check_gpu(ATOM_GPU(GetLastError)(), "compare");
  float result = 0;
  check_gpu(ATOM_GPU(Memcpy)(&result, worst.get(), sizeof(float), ATOM_GPU(MemcpyDeviceToHost)),
            "compare");
  return result;
}

}  // namespace atom::bench
