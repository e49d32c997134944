// The gate of a shared expert: one logit per token, whose sigmoid multiplies what the expert adds.
#pragma once

#include "layers/linear/replicated_linear.h"

namespace atom {

class SharedExpertGate : public Module {
 public:
  explicit SharedExpertGate(BuildContext& build);

  // out += sigmoid(gate x) * shared; x, shared and out [num_tokens, hidden_size].
  void add_gated(const Activation& x,
                 const Tensor& shared,
                 const Tensor& out,
                 const ForwardContext& context) const;

 private:
  ReplicatedLinear gate_;
};

}  // namespace atom
