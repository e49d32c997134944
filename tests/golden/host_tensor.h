// Copies of a device's tensors that a test reads and writes.
#pragma once

#include "base/check.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// On the CPU, complete; the tensor itself if it is there.
inline Tensor host_copy(const Stream& stream, const Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  const Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype());
  if (tensor.is_contiguous()) {
    stream.queue().copy(copy.raw_data(), tensor.raw_data(), tensor.num_bytes());
  } else {
    CHECK(tensor.rank() == 2);
    for (int64_t row = 0; row < tensor.size(0); ++row) {
      const Tensor from = tensor.narrow(0, row, 1), to = copy.narrow(0, row, 1);
      stream.queue().copy(to.raw_data(), from.raw_data(), from.num_bytes());
    }
  }
  stream.queue().synchronize();
  return copy;
}

// Of what host_copy() gave, to where it came from.
inline void copy_back(const Stream& stream, const Tensor& copy, const Tensor& tensor) {
  if (tensor.device().is_cpu()) return;
  stream.queue().copy(tensor.raw_data(), copy.raw_data(), copy.num_bytes());
  stream.queue().synchronize();
}

}  // namespace atom
