// A kernel that only lets time pass.
#pragma once

#include "tensor/gpu_api.h"

namespace atom {

void delay_cuda(long long nanoseconds, gpuStream_t stream);

}  // namespace atom
