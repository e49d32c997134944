#include "models/blocks/linear_attention.h"

namespace atom {

LinearAttention::LinearAttention(BuildContext& build,
                                 const GatedDeltaNetSizes& sizes,
                                 DeltaNetRows rows)
    : in_proj_qkvz_(ModuleScope(build, "in_proj_qkvz"), sizes, rows),
      in_proj_ba_(ModuleScope(build, "in_proj_ba"), sizes, rows),
      core_(build, sizes),
      out_proj_(ModuleScope(build, "out_proj"),
                sizes.value_dim(),
                build.config.hidden_size,
                /*has_bias=*/false) {
  register_module("in_proj_qkvz", &in_proj_qkvz_);
  register_module("in_proj_ba", &in_proj_ba_);
  register_module("", &core_);
  register_module("out_proj", &out_proj_);
}

void LinearAttention::forward(const Activation& x,
                              const Tensor& out,
                              const ForwardContext& context) const {
  const auto [qkv, z] = in_proj_qkvz_.forward(x, context);
  const DeltaNetGates gates = in_proj_ba_.gates(x, context);
  out_proj_.forward(core_.forward(qkv, z, gates, out_proj_.wanted(), context), out, context);
}

}  // namespace atom
