// The weight parameter of a linear layer, whatever its quantisation.
#pragma once

#include "layers/linear/linear_partition.h"
#include "nn/parameter.h"
#include "tensor/dtype.h"

namespace atom {

// [local_out_features, local_in_features] of `dtype`.
Parameter make_weight(DType dtype, const LinearPartition& partition);

}  // namespace atom
