// Filling tensors on a stream.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// Every byte of a contiguous tensor becomes 0. Nothing happens on a dry run.
void fill_zero(const Stream& stream, const Tensor& tensor);

// Every byte of a tensor of two dimensions whose rows may lie apart becomes `value`. Likewise.
void fill_bytes(const Stream& stream, const Tensor& rows, uint8_t value);

}  // namespace atom
