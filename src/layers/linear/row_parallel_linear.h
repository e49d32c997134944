// A projection split along its input: each rank multiplies its part of x by its columns of W.
//
//          W [out, in] = [ W_0 | W_1 | ... ]      y = sum over ranks of x_r W_rᵀ (+ b once)
#pragma once

#include "layers/linear/linear_base.h"

namespace atom {

class RowParallelLinear : public LinearBase {
 public:
  RowParallelLinear(BuildContext& build, int64_t in_features, int64_t out_features, bool has_bias);

  // x [num_rows, local_in_features] -> y [num_rows, out_features], contiguous: this rank's part of
  // the sum, which its reader completes. The bias is in the first rank's part.
  using LinearBase::forward;
};

}  // namespace atom
