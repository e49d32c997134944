#include "layers/linear/linear_base.h"

namespace atom {

LinearBase::LinearBase(BuildContext& build, const LinearPartition& partition, bool has_bias)
    : local_out_features_(partition.local_out_features()),
      method_(make_linear_method(build, partition)) {
  register_module("", method_.get());
  if (has_bias) {
    bias_ = std::make_unique<Parameter>(build.dtype, partition.out_slices, Shape{});
    register_parameter("bias", bias_.get());
  }
}

void LinearBase::forward(const Tensor& x, const Tensor& y, const ForwardContext& context) const {
  const Tensor bias = bias_ == nullptr ? Tensor() : bias_->data();
  method_->apply(context.stream, x, bias, y, context.workspace);
}

Tensor LinearBase::forward(const Tensor& x, const ForwardContext& context) const {
  const Tensor y = context.workspace.tensor({x.size(0), local_out_features_}, x.dtype());
  forward(x, y, context);
  return y;
}

ShardPart tensor_parallel_part(const BuildContext& build) {
  return {build.parallel.tensor_parallel_rank, build.parallel.tensor_parallel_size};
}

}  // namespace atom
