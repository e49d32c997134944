// Copies on a stream's device.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// from [rows, size] -> to likewise, of the same dtype and any row stride. Nothing in a dry run.
void copy_rows(const Stream& stream, const Tensor& from, const Tensor& to);

}  // namespace atom
