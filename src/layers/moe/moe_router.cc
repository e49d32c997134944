#include "layers/moe/moe_router.h"

#include "layers/quant/pack_parameter.h"
#include "nn/forward_observer.h"
#include "ops/route_tokens/route_tokens.h"

namespace atom {
namespace {

Tensor data_of(const std::unique_ptr<Parameter>& parameter) {
  return parameter == nullptr ? Tensor() : parameter->data();
}

// The slice for rows of the router's weight in a checkpoint, which begin at row `first` here.
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

// To so many rows that a device's matrix units take them all: cuBLASLt's kernels for an odd number
// of rows take ten times as long. A bias would have to be as wide.
int64_t num_rows_of_zeros(const MoeRouterOptions& options, int64_t num_rows, Device device) {
  constexpr int64_t kAlignment = 8;
  if (device.is_cpu() || options.has_bias) return 0;
  return (kAlignment - num_rows % kAlignment) % kAlignment;
}

}  // namespace

MoeRouter::MoeRouter(const BuildContext& build, const MoeRouterOptions& options)
    : routing_(options.routing),
      weight_(build.dtype,
              weight_shape(options, build.config.hidden_size),
              weight_slices(options, build.config.hidden_size)),
      num_logits_(weight_.shape()[0]),
      packed_(ops::linear_weight_meta(
          num_logits_ + num_rows_of_zeros(options, num_logits_, build.device),
          build.config.hidden_size,
          build.dtype,
          ops::preferred_weight_layout(build.device))) {
  weight_.add_rows_of_zeros(packed_.out_features - num_logits_);
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
  const Tensor products = workspace.tensor({x.size(0), packed_.out_features}, DType::kFloat32);
  ops::route_tokens(context.stream,
                    x,
                    packed_,
                    data_of(bias_),
                    data_of(selection_bias_),
                    routing_,
                    num_logits_,
                    products,
                    choice.ids,
                    choice.weights,
                    workspace);
  if (context.observer != nullptr) {
    const Tensor logits = products.narrow(1, 0, num_logits_);
    context.observer->on_experts(context.stream, logits, routing_, choice.ids, choice.weights);
  }
  return choice;
}

}  // namespace atom
