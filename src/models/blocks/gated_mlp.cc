#include "models/blocks/gated_mlp.h"

#include "layers/activation.h"

namespace atom {

GatedMLP::GatedMLP(BuildContext& build, int64_t intermediate_size, bool has_bias)
    : gate_up_proj_(ModuleScope(build, "gate_up_proj"),
                    build.config.hidden_size,
                    {{"gate", intermediate_size}, {"up", intermediate_size}},
                    has_bias),
      down_proj_(
          ModuleScope(build, "down_proj"), intermediate_size, build.config.hidden_size, has_bias) {
  register_module("gate_up_proj", &gate_up_proj_);
  register_module("down_proj", &down_proj_);
}

void GatedMLP::forward(const LinearInput& x, const ForwardContext& context) const {
  down_proj_.forward(silu_and_mul(x, gate_up_proj_, down_proj_, context), x, context);
}

}  // namespace atom
