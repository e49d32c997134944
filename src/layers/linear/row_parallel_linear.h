// A projection split along its input: each rank multiplies its part of x by its columns of W.
//
//          W [out, in] = [ W_0 | W_1 | ... ]      y = sum over ranks of x_r W_rᵀ (+ b once)
#pragma once

#include "layers/linear/linear_base.h"

namespace atom {

class RowParallelLinear : public LinearBase {
 public:
  // `reduces`: forward() gives the sum; else this rank's part of it, which its user adds to others
  // and reduces. The bias is in the first rank's part.
  RowParallelLinear(BuildContext& build,
                    int64_t in_features,
                    int64_t out_features,
                    bool has_bias,
                    bool reduces = true);

  // x [num_rows, local_in_features] -> y [num_rows, out_features], contiguous.
  void forward(const Activation& x, const Tensor& y, const ForwardContext& context) const;

 private:
  ParallelContext parallel_;
  bool reduces_;
};

}  // namespace atom
