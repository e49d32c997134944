// Copies of a device's tensors that a test reads and writes.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// On the CPU, complete; the tensor itself if it is there.
inline Tensor host_copy(const Stream& stream, const Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  const Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype());
  stream.queue().copy(copy.raw_data(), tensor.raw_data(), tensor.num_bytes());
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
