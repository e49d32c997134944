// From a loaded parameter to the layout that the kernels of this machine read.
#pragma once

#include "nn/parameter.h"
#include "ops/linear/linear.h"
#include "tensor/stream.h"

namespace atom {

// Packs `weight` [out_features, in_features] and releases it. The two share what is resident: each
// piece of the parameter is given back once it is packed. On a device the memory changes hands.
ops::LinearWeight pack_parameter(const Stream& stream, Parameter* weight);

}  // namespace atom
