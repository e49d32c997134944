// The linear-attention half of a hybrid layer: the projections of a Gated DeltaNet and its core.
#pragma once

#include "layers/attention/gated_delta_net.h"
#include "layers/linear/delta_net_linear.h"
#include "layers/linear/row_parallel_linear.h"
#include "models/blocks/sub_layer.h"
#include "nn/build_context.h"

namespace atom {

class LinearAttention : public TokenMixer {
 public:
  LinearAttention(BuildContext& build, const GatedDeltaNetSizes& sizes, DeltaNetRows rows);

  ActivationFormat wanted(int64_t /*num_tokens*/) const override {
    return unite(in_proj_qkvz_.wanted(), in_proj_ba_.wanted());
  }
  void forward(const Activation& x,
               const Tensor& out,
               const ForwardContext& context) const override;

 private:
  QkvzParallelLinear in_proj_qkvz_;
  BaParallelLinear in_proj_ba_;
  GatedDeltaNet core_;
  RowParallelLinear out_proj_;
};

}  // namespace atom
