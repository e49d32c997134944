#include "layers/moe/moe_router.h"

#include "layers/quant/pack_parameter.h"
#include "nn/forward_observer.h"
#include "ops/moe_route/moe_route.h"

namespace atom {
namespace {

Tensor data_of(const std::unique_ptr<Parameter>& parameter) {
  return parameter == nullptr ? Tensor() : parameter->data();
}

}  // namespace

MoeRouter::MoeRouter(const BuildContext& build, const MoeRouterOptions& options)
    : routing_(options.routing),
      weight_(build.dtype, Shape{options.num_experts, build.config.hidden_size}),
      packed_(ops::linear_weight_meta(options.num_experts,
                                      build.config.hidden_size,
                                      build.dtype,
                                      ops::preferred_weight_layout(build.device))) {
  register_parameter("weight", &weight_);
  const ParallelContext& parallel = build.parallel;
  if (parallel.expert_parallel) {
    routing_.shared_rank = parallel.tensor_parallel_rank;
    routing_.shared_world = parallel.tensor_parallel_size;
  }
  const auto add_bias = [&](const char* name, std::unique_ptr<Parameter>* bias) {
    *bias = std::make_unique<Parameter>(DType::kFloat32, Shape{options.num_experts});
    register_parameter(name, bias->get());
  };
  if (options.has_bias) add_bias("bias", &bias_);
  if (options.has_selection_bias) add_bias("e_score_correction_bias", &selection_bias_);
}

Status MoeRouter::finish_load(const Stream& stream) {
  packed_ = pack_parameter(stream, &weight_);
  return {};
}

int64_t MoeRouter::resident_bytes() const {
  return packed_.data.num_bytes() + Module::resident_bytes() - weight_.num_bytes();
}

MoeRouter::Choice MoeRouter::forward(const Tensor& x, const ForwardContext& context) const {
  Workspace& workspace = context.workspace;
  const Shape shape = {x.size(0), routing_.top_k + routing_.num_shared};
  const Choice choice = {workspace.tensor(shape, DType::kInt32),
                         workspace.tensor(shape, DType::kFloat32)};
  const Workspace::Scope scope(workspace);
  const Tensor logits = workspace.tensor({x.size(0), packed_.out_features}, DType::kFloat32);
  ops::linear(context.stream, x, packed_, data_of(bias_), logits, workspace);
  ops::moe_route(
      context.stream, logits, data_of(selection_bias_), routing_, choice.ids, choice.weights);
  if (context.observer != nullptr) {
    context.observer->on_experts(context.stream, logits, routing_, choice.ids, choice.weights);
  }
  return choice;
}

}  // namespace atom
