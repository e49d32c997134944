#include "models/blocks/moe_block.h"

#include "layers/moe/shared_experts.h"

namespace atom {
namespace {

bool has_shared_apart(BuildContext& build, const MoeBlockOptions& options) {
  return options.experts.num_shared > 0 && !are_shared_experts_alike(ModuleScope(build, "experts"));
}

MoeRouterOptions router_options(MoeRouterOptions options, bool has_shared_apart) {
  if (has_shared_apart) options.routing.num_shared = 0;
  return options;
}

FusedMoEOptions stack_options(FusedMoEOptions options, bool has_shared_apart) {
  if (has_shared_apart) options.num_shared = 0;
  return options;
}

}  // namespace

MoeBlock::MoeBlock(BuildContext& build, const MoeBlockOptions& options)
    : parallel_(build.parallel),
      has_shared_apart_(has_shared_apart(build, options)),
      router_(ModuleScope(build, options.router_name),
              router_options(options.router, has_shared_apart_)),
      experts_(ModuleScope(build, "experts"), stack_options(options.experts, has_shared_apart_)) {
  register_module(options.router_name, &router_);
  register_module("experts", &experts_);
  if (has_shared_apart_) {
    shared_experts_ =
        std::make_unique<GatedMLP>(ModuleScope(build, "shared_experts"),
                                   options.experts.num_shared * options.experts.intermediate_size,
                                   /*has_bias=*/false,
                                   /*reduces=*/false);
    register_module("shared_experts", shared_experts_.get());
  }
  if (options.gated_shared_size == 0) return;
  gated_shared_ = std::make_unique<GatedSharedExpert>(build, options.gated_shared_size);
  register_module("", gated_shared_.get());
}

void MoeBlock::add_shared(const Activation& x,
                          const Tensor& out,
                          const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const Tensor added = context.workspace.tensor(out.shape(), out.dtype());
  shared_experts_->forward(x, added, context);
  add_shared_experts(added, out, context);
}

void MoeBlock::forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const {
  experts_.forward(x.rows, router_.forward(x.rows, context), out, context);
  if (shared_experts_ != nullptr) add_shared(x, out, context);
  if (gated_shared_ != nullptr) gated_shared_->add_to(out, x, context);
  parallel_.all_reduce(context.stream, out);
}

}  // namespace atom
