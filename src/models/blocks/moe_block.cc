#include "models/blocks/moe_block.h"

namespace atom {

MoeBlock::MoeBlock(BuildContext& build, const MoeBlockOptions& options)
    : router_(ModuleScope(build, options.router_name), options.router),
      experts_(ModuleScope(build, "experts"), options.experts) {
  register_module(options.router_name, &router_);
  register_module("experts", &experts_);
}

void MoeBlock::forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const {
  experts_.forward(x.rows, router_.forward(x.rows, context), out, context);
}

}  // namespace atom
