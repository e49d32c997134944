#include "layers/linear/linear_base.h"

namespace atom {

LinearBase::LinearBase(BuildContext& build, const LinearPartition& partition, bool has_bias)
    : local_in_features_(partition.local_in_features()),
      local_out_features_(partition.local_out_features()),
      method_(make_linear_method(build, partition)) {
  register_module("", method_.get());
  if (has_bias) {
    bias_ = std::make_unique<Parameter>(build.dtype, partition.out_slices, Shape{});
    register_parameter("bias", bias_.get());
  }
}

void LinearBase::forward(const LinearInput& x,
                         const Tensor& y,
                         const ForwardContext& context) const {
  if (x.is_quantised()) {
    method_->apply_quantised(context.stream, x.quantised, bias(), y, context.workspace);
  } else {
    method_->apply(context.stream, x.rows, bias(), y, context.workspace);
  }
}

void LinearBase::forward_silu_and_mul(const LinearInput& x,
                                      const Tensor& y,
                                      const ForwardContext& context) const {
  method_->apply_silu_and_mul(context.stream, x, bias(), y, context.workspace);
}

bool LinearBase::activates(const LinearInput& x, const ForwardContext& context) const {
  return x.is_quantised() &&
         method_->activates(context.stream, x.quantised, bias(), x.rows.dtype());
}

Tensor LinearBase::forward(const LinearInput& x, const ForwardContext& context) const {
  const Tensor y = context.workspace.tensor({x.rows.size(0), local_out_features_}, x.rows.dtype());
  forward(x, y, context);
  return y;
}

ops::QuantizedRows LinearBase::quantised_input(const ForwardContext& context) const {
  const InputFormat format = method_->input_format();
  if (format == InputFormat::kFloat) return {};
  const int64_t num_tokens = context.num_tokens();
  const Tensor values =
      context.workspace.tensor({num_tokens, local_in_features_}, DType::kFloat8E4M3);
  if (format == InputFormat::kFloat8Static) {
    return {values, method_->input_scale(), QuantType::kPerTensor, true};
  }
  return {
      values, context.workspace.tensor({num_tokens}, DType::kFloat32), QuantType::kPerToken, false};
}

ShardPart tensor_parallel_part(const BuildContext& build) {
  return {build.parallel.tensor_parallel_rank, build.parallel.tensor_parallel_size};
}

}  // namespace atom
