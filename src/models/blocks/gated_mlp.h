// The gated feed-forward block of the Llama family: down(silu(gate x) * up x).
#pragma once

#include "layers/linear/merged_column_parallel_linear.h"
#include "layers/linear/row_parallel_linear.h"
#include "models/blocks/sub_layer.h"
#include "nn/build_context.h"

namespace atom {

class GatedMLP : public FeedForward {
 public:
  GatedMLP(BuildContext& build, int64_t intermediate_size, bool has_bias);

  ActivationFormat wanted(int64_t /*num_tokens*/) const override { return gate_up_proj_.wanted(); }
  void forward(const Activation& x,
               const Tensor& out,
               const ForwardContext& context) const override;

 private:
  bool quantizes_product_;  // for down_proj, if it reads codes
  MergedColumnParallelLinear gate_up_proj_;
  RowParallelLinear down_proj_;
};

}  // namespace atom
