// Host memory that a device copies from and to without the processor.
#pragma once

#include "tensor/tensor.h"

namespace atom {

// A tensor of the CPU, uninitialised; ordinary memory when `device` is the CPU itself.
Tensor pinned_tensor(Device device, const Shape& shape, DType dtype);

}  // namespace atom
