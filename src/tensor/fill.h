// Filling tensors on a stream.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// Every byte of a contiguous tensor becomes 0. Nothing happens on a dry run.
void fill_zero(const Stream& stream, const Tensor& tensor);

}  // namespace atom
