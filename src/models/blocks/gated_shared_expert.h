// An expert that every token has, beside the routed ones, and the gate on what it adds
// (Qwen3-Next, Qwen3.5).
#pragma once

#include "layers/moe/shared_expert_gate.h"
#include "models/blocks/gated_mlp.h"

namespace atom {

class GatedSharedExpert : public Module {
 public:
  GatedSharedExpert(BuildContext& build, int64_t intermediate_size);

  // The expert's; the gate reads rows.
  ActivationFormat wanted(int64_t num_tokens) const {
    return unite(expert_.wanted(num_tokens), {});
  }

  // out [num_tokens, hidden_size] += sigmoid(gate x) * this rank's part of expert(x).
  void add_to(const Tensor& out, const Activation& x, const ForwardContext& context) const;

 private:
  GatedMLP expert_;
  SharedExpertGate gate_;
};

}  // namespace atom
