#include "layers/moe/moe_router.h"

#include "layers/quant/pack_parameter.h"
#include "nn/forward_observer.h"
#include "ops/moe_route/moe_route.h"

namespace atom {
namespace {

Tensor data_of(const std::unique_ptr<Parameter>& parameter) {
  return parameter == nullptr ? Tensor() : parameter->data();
}

// Of the router's weight in a checkpoint, which begin at row `first` here.
ParameterSlice rows_of(const char* id, int64_t first, int64_t num_rows, int64_t hidden_size) {
  const Shape size = {num_rows, hidden_size};
  return {id, size, {{{{0, 0}, size}, {{first, 0}, size}}}};
}

std::vector<ParameterSlice> weight_slices(const MoeRouterOptions& options, int64_t hidden_size) {
  std::vector<ParameterSlice> slices = {rows_of("", 0, options.num_experts, hidden_size)};
  if (const int64_t gates = options.routing.num_gates(); gates > 0) {
    slices.push_back(rows_of(MoeRouter::kSharedGate, options.num_experts, gates, hidden_size));
  }
  return slices;
}

Shape weight_shape(const MoeRouterOptions& options, int64_t hidden_size) {
  return {options.num_experts + options.routing.num_gates(), hidden_size};
}

// Of a row of logits in memory: matrix units of a device take rows that begin at multiples of this.
int64_t row_size(const Tensor& x, int64_t num_logits) {
  constexpr int64_t kAlignment = 8;
  return x.device().is_cpu() ? num_logits : (num_logits + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

MoeRouter::MoeRouter(const BuildContext& build, const MoeRouterOptions& options)
    : routing_(options.routing),
      weight_(build.dtype,
              weight_shape(options, build.config.hidden_size),
              weight_slices(options, build.config.hidden_size)),
      packed_(ops::linear_weight_meta(weight_.shape()[0],
                                      build.config.hidden_size,
                                      build.dtype,
                                      ops::preferred_weight_layout(build.device))) {
  register_parameter("weight", &weight_);
  const ParallelContext& parallel = build.parallel;
  if (parallel.expert_parallel && !parallel.copies_share_experts()) {
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
  const int64_t num_logits = packed_.out_features;
  const Tensor logits = workspace.tensor({x.size(0), row_size(x, num_logits)}, DType::kFloat32)
                            .narrow(1, 0, num_logits);
  ops::linear(context.stream, x, packed_, data_of(bias_), logits, workspace);
  ops::moe_route(
      context.stream, logits, data_of(selection_bias_), routing_, choice.ids, choice.weights);
  if (context.observer != nullptr) {
    context.observer->on_experts(context.stream, logits, routing_, choice.ids, choice.weights);
  }
  return choice;
}

}  // namespace atom
