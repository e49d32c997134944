// Experts' tensors on a device, whose kernels know of the first one's place and of the distance to
// the next.
#pragma once

#include <vector>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// Copies of `parts`, contiguous tensors of the CPU of one shape, as slices of one tensor where the
// stream works, side by side in the same order. They stay.
std::vector<Tensor> resident_slices(const Stream& stream, const std::vector<Tensor>& parts);

}  // namespace atom
