#include "layers/rms_norm.h"

#include "base/env.h"
#include "ops/rms_norm/rms_norm.h"

namespace atom {

RMSNorm::RMSNorm(const BuildContext& build, int64_t size)
    : weight_(build.dtype, Shape{size}), eps_(build.config.rms_norm_eps) {
  register_parameter("weight", &weight_);
}

void RMSNorm::forward(const Tensor& x, const ForwardContext& context) const {
  ops::rms_norm(context.stream, x, weight_.data(), eps_, x);
}

void RMSNorm::forward_add(const Tensor& x,
                          const Tensor& residual,
                          const ForwardContext& context) const {
  ops::add_rms_norm(context.stream, x, residual, weight_.data(), eps_, x);
}

LinearInput RMSNorm::forward_add(const Tensor& x,
                                 const Tensor& residual,
                                 const LinearBase& next,
                                 const ForwardContext& context) const {
  if (env().fused_rms_norm_quant) {
    const ops::QuantizedRows codes = next.quantised_input(context);
    if (codes.values.defined()) {
      ops::add_rms_norm(
          context.stream, x, residual, weight_.data(), eps_, Tensor(), codes, context.workspace);
      return {x, codes};
    }
  }
  forward_add(x, residual, context);
  return x;
}

}  // namespace atom
