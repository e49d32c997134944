#include "models/blocks/moe_block.h"

#include "layers/moe/shared_experts.h"
#include "tensor/fill.h"

namespace atom {
namespace {

bool has_gate(const MoeBlockOptions& options) {
  return options.gated_shared_size > 0;
}

int64_t num_shared(const MoeBlockOptions& options) {
  return has_gate(options) ? 1 : options.experts.num_shared;
}

bool are_slots(BuildContext& build, const MoeBlockOptions& options) {
  if (num_shared(options) == 0) return false;
  const bool fits =
      !has_gate(options) || options.gated_shared_size == options.experts.intermediate_size;
  return fits && are_shared_experts_alike(ModuleScope(build, "experts"));
}

MoeRouterOptions router_options(MoeRouterOptions router,
                                const MoeBlockOptions& options,
                                bool are_slots) {
  router.routing.num_shared = are_slots ? num_shared(options) : 0;
  router.routing.gates_shared = are_slots && has_gate(options);
  return router;
}

FusedMoEOptions stack_options(FusedMoEOptions experts,
                              const MoeBlockOptions& options,
                              bool are_slots) {
  experts.num_shared = are_slots ? num_shared(options) : 0;
  return experts;
}

}  // namespace

MoeBlock::MoeBlock(BuildContext& build, const MoeBlockOptions& options)
    : parallel_(build.parallel),
      has_slots_(are_slots(build, options)),
      router_(ModuleScope(build, options.router_name),
              router_options(options.router, options, has_slots_)),
      experts_(ModuleScope(build, "experts"), stack_options(options.experts, options, has_slots_)),
      exchange_(make_expert_exchange(
          build, expert_owners(build, stack_options(options.experts, options, has_slots_)))) {
  register_module(options.router_name, &router_);
  register_module("experts", &experts_);
  if (has_slots_ || num_shared(options) == 0) return;
  if (has_gate(options)) {
    gated_shared_ = std::make_unique<GatedSharedExpert>(build, options.gated_shared_size);
    register_module("", gated_shared_.get());
    return;
  }
  shared_experts_ =
      std::make_unique<GatedMLP>(ModuleScope(build, "shared_experts"),
                                 options.experts.num_shared * options.experts.intermediate_size,
                                 /*has_bias=*/false);
  register_module("shared_experts", shared_experts_.get());
}

ActivationFormat MoeBlock::wanted(int64_t num_tokens) const {
  // With codes a recorded step of one token is 4 % longer (Qwen3-30B and Qwen3-Next on an H200), of
  // two or four tokens of Qwen3-30B 1 %.
  if (num_tokens <= experts_.most_row_tokens()) return {};
  // Tokens travel as rows.
  ActivationFormat format = leaves_parts() ? experts_.wanted() : ActivationFormat();
  if (shared_experts_ != nullptr) format = unite(format, shared_experts_->wanted(num_tokens));
  if (gated_shared_ != nullptr) format = unite(format, gated_shared_->wanted(num_tokens));
  return unite(format, router_.wanted());
}

void MoeBlock::add_shared(const Activation& x,
                          const Tensor& out,
                          const ForwardContext& context) const {
  if (gated_shared_ != nullptr) gated_shared_->add_to(out, x, context);
  if (shared_experts_ == nullptr) return;
  const Workspace::Scope scope(context.workspace);
  const Tensor added = context.workspace.tensor(out.shape(), out.dtype());
  shared_experts_->forward(x, added, context);
  add_shared_experts(added, out, context);
}

void MoeBlock::add_whole_shared(const Activation& x,
                                const Tensor& out,
                                const ForwardContext& context) const {
  if (shared_experts_ == nullptr && gated_shared_ == nullptr) return;
  if (parallel_.tensor_parallel_size == 1) return add_shared(x, out, context);
  const Workspace::Scope scope(context.workspace);
  const Tensor sum = context.workspace.tensor(out.shape(), out.dtype());
  fill_zero(context.stream, sum);
  add_shared(x, sum, context);
  parallel_.all_reduce(context.stream, sum);
  add_shared_experts(sum, out, context);
}

void MoeBlock::forward(const Activation& x,
                       const Tensor& out,
                       const ForwardContext& context) const {
  const MoeRouter::Choice choice = router_.forward(x.rows, context);
  experts_.choose_slots(choice, context);
  const ExpertRows rows = exchange_->prepare(x.rows, choice, out, context);
  const Activation of_experts = leaves_parts() ? Activation(rows.x, x.codes) : Activation(rows.x);
  experts_.forward(of_experts, rows.choice, rows.y, context);
  if (leaves_parts()) add_shared(x, rows.y, context);
  exchange_->finalize(rows, out, context);
  if (!leaves_parts()) add_whole_shared(x, out, context);
}

}  // namespace atom
