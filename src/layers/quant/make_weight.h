// The weight parameter of a linear layer, whatever its quantization.
#pragma once

#include "layers/linear/linear_partition.h"
#include "nn/parameter.h"
#include "tensor/dtype.h"

namespace atom {

// [local_out_features, local_in_features] of `dtype`.
Parameter make_weight(DType dtype, const LinearPartition& partition);

}  // namespace atom
