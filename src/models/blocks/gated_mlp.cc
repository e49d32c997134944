#include "models/blocks/gated_mlp.h"

namespace atom {

GatedMLP::GatedMLP(BuildContext& build, int64_t intermediate_size, bool has_bias)
    : quantizes_product_(build.fusions.silu_and_mul_quant),
      gate_up_proj_(ModuleScope(build, "gate_up_proj"),
                    build.config.hidden_size,
                    {{"gate", intermediate_size}, {"up", intermediate_size}},
                    has_bias),
      down_proj_(
          ModuleScope(build, "down_proj"), intermediate_size, build.config.hidden_size, has_bias) {
  register_module("gate_up_proj", &gate_up_proj_);
  register_module("down_proj", &down_proj_);
}

void GatedMLP::forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const {
  const ActivationFormat format = quantizes_product_ ? down_proj_.wanted() : ActivationFormat();
  down_proj_.forward(gate_up_proj_.forward_silu_and_mul(x, format, context), out, context);
}

}  // namespace atom
