#include "layers/linear/linear_base.h"

#include "nn/forward_observer.h"

namespace atom {
namespace {

void tell_observer(const Activation& x, const ForwardContext& context) {
  if (context.observer != nullptr) context.observer->on_linear(context.stream, x.rows, x.codes);
}

}  // namespace

LinearBase::LinearBase(BuildContext& build,
                       const LinearPartition& partition,
                       bool has_bias,
                       bool adds_bias)
    : dtype_(build.dtype),
      local_out_features_(partition.local_out_features()),
      method_(make_linear_method(build, partition)),
      adds_bias_(has_bias && adds_bias) {
  register_module("", method_.get());
  if (has_bias) {
    bias_ = std::make_unique<Parameter>(build.dtype, partition.out_slices, Shape{});
    register_parameter("bias", bias_.get());
  }
}

void LinearBase::forward(const Activation& x,
                         const Tensor& y,
                         const ForwardContext& context) const {
  tell_observer(x, context);
  method_->apply(context.stream, x, bias(), y, context.workspace);
}

Tensor LinearBase::forward(const Activation& x, const ForwardContext& context) const {
  const Tensor y = context.workspace.tensor({x.num_rows(), local_out_features_}, dtype_);
  forward(x, y, context);
  return y;
}

Activation LinearBase::forward_silu_and_mul(const Activation& x,
                                            const ActivationFormat& format,
                                            const ForwardContext& context) const {
  const int64_t size = local_out_features_ / 2;
  const Activation y =
      format.has_codes() ? Activation({}, make_codes(format, x.num_rows(), size, context.workspace))
                         : Activation(context.workspace.tensor({x.num_rows(), size}, dtype_));
  tell_observer(x, context);
  method_->apply_silu_and_mul(context.stream, x, bias(), y, dtype_, context.workspace);
  return y;
}

ShardPart tensor_parallel_part(const BuildContext& build) {
  return {build.parallel.tensor_parallel_rank, build.parallel.tensor_parallel_size};
}

void require_even_split(BuildContext& build, int64_t count, std::string_view what) {
  require_even_split(build, count, what, build.parallel.tensor_parallel_size);
}

void require_even_split(BuildContext& build,
                        int64_t count,
                        std::string_view what,
                        int32_t num_ranks) {
  if (count % num_ranks == 0) return;
  build.fail(unimplemented(
      "{} {}: {} has {} {}, which {} ranks cannot share evenly",
      build.parallel.copies_share_experts() ? "--data-parallel-size" : "--tensor-parallel-size",
      build.parallel.copies_share_experts() ? build.parallel.data_parallel_size : num_ranks,
      build.module_name,
      count,
      what,
      num_ranks));
  build.parallel = {};
}

}  // namespace atom
