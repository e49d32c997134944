#include "models/blocks/gated_shared_expert.h"

namespace atom {

GatedSharedExpert::GatedSharedExpert(BuildContext& build, int64_t intermediate_size)
    : expert_(ModuleScope(build, "shared_expert"),
              intermediate_size,
              /*has_bias=*/false),
      gate_(ModuleScope(build, "shared_expert_gate")) {
  register_module("shared_expert", &expert_);
  register_module("shared_expert_gate", &gate_);
}

void GatedSharedExpert::add_to(const Tensor& out,
                               const Activation& x,
                               const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const Tensor added = context.workspace.tensor(out.shape(), out.dtype());
  expert_.forward(x, added, context);
  gate_.add_gated(x, added, out, context);
}

}  // namespace atom
