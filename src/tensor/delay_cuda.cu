#include "tensor/delay_cuda.h"

namespace atom {
namespace {

__global__ void delay_kernel(long long ticks) {
  const unsigned long long begin = gpu_ticks();
  unsigned long long now;
  do {
    now = gpu_ticks();
  } while (now - begin < static_cast<unsigned long long>(ticks));
}

}  // namespace

gpuError_t delay_cuda(long long nanoseconds, gpuStream_t stream) {
  long long ticks = 0;
  const gpuError_t error = gpu_ticks_of(nanoseconds, &ticks);
  if (error != ATOM_GPU(Success)) return error;
  delay_kernel<<<1, 1, 0, stream>>>(ticks);
  return ATOM_GPU(GetLastError)();
}

}  // namespace atom
