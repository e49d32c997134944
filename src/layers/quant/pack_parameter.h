// From a loaded parameter to the layout that the kernels of this machine read.
#pragma once

#include "nn/parameter.h"
#include "ops/linear/linear.h"
#include "tensor/stream.h"

namespace atom {

// Weights cut at multiples of this many rows take as much memory as the whole.
constexpr int64_t kPackedRowMultiple = 64;

// Packs `weight` [out_features, in_features] and releases it. The two share what is resident: each
// piece of the parameter is given back once it is packed. On a device the memory changes hands.
ops::LinearWeight pack_parameter(const Stream& stream, Parameter* weight);

// Packs contiguous `rows` [out_features, in_features] in the same way: on the CPU their content is
// lost, on a device they become the weight.
ops::LinearWeight pack_consumed_rows(const Stream& stream, const Tensor& rows);

// On the CPU: the same after quantising rows of a float dtype to FP8, each with a scale of its own.
ops::LinearWeight quantise_rows(const Stream& stream, const Tensor& rows);

}  // namespace atom
