#include "layers/moe/shared_expert_gate.h"

#include "ops/sigmoid_gate/sigmoid_gate.h"

namespace atom {

SharedExpertGate::SharedExpertGate(BuildContext& build)
    : gate_(build, build.config.hidden_size, /*out_features=*/1, /*has_bias=*/false) {
  register_module("", &gate_);
}

void SharedExpertGate::add_gated(const Activation& x,
                                 const Tensor& shared,
                                 const Tensor& out,
                                 const ForwardContext& context) const {
  const int64_t num_tokens = out.size(0), size = out.size(1);
  const Tensor logits = gate_.forward(x, context);
  ops::add_sigmoid_gate(context.stream,
                        shared.view({num_tokens, 1, size}),
                        logits.view({num_tokens, 1, 1}),
                        out.view({num_tokens, 1, size}));
}

}  // namespace atom
