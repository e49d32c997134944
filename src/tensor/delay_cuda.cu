#include "tensor/delay_cuda.h"

namespace atom {
namespace {

__global__ void delay_kernel(long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < static_cast<unsigned long long>(nanoseconds));
}

}  // namespace

void delay_cuda(long long nanoseconds, gpuStream_t stream) {
  delay_kernel<<<1, 1, 0, stream>>>(nanoseconds);
}

}  // namespace atom
