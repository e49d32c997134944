#include "layers/rms_norm.h"

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

}  // namespace atom
