#include "models/blocks/moe_block.h"

namespace atom {

MoeBlock::MoeBlock(BuildContext& build, const MoeBlockOptions& options)
    : parallel_(build.parallel),
      router_(ModuleScope(build, options.router_name), options.router),
      experts_(ModuleScope(build, "experts"), options.experts) {
  register_module(options.router_name, &router_);
  register_module("experts", &experts_);
  if (options.gated_shared_size == 0) return;
  shared_ = std::make_unique<GatedSharedExpert>(build, options.gated_shared_size);
  register_module("", shared_.get());
}

void MoeBlock::forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const {
  experts_.forward(x.rows, router_.forward(x.rows, context), out, context);
  if (shared_ != nullptr) shared_->add_to(out, x, context);
  parallel_.all_reduce(context.stream, out);
}

}  // namespace atom
