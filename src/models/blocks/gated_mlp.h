// The gated feed-forward block of the Llama family: down(silu(gate x) * up x).
#pragma once

#include "layers/linear/merged_column_parallel_linear.h"
#include "layers/linear/row_parallel_linear.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"

namespace atom {

class GatedMLP : public Module {
 public:
  GatedMLP(BuildContext& build, int64_t intermediate_size, bool has_bias);

  // x [num_tokens, hidden_size], whose memory takes the block's output.
  void forward(const LinearInput& x, const ForwardContext& context) const;
  const LinearBase& input_linear() const { return gate_up_proj_; }

 private:
  MergedColumnParallelLinear gate_up_proj_;
  RowParallelLinear down_proj_;
};

}  // namespace atom
