// Root-mean-square normalisation over the last dimension, with a learned scale.
#pragma once

#include "layers/linear/linear_base.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"

namespace atom {

class RMSNorm : public Module {
 public:
  RMSNorm(const BuildContext& build, int64_t size);

  // x [num_tokens, size] or [num_tokens, num_heads, size], normalised in place.
  void forward(const Tensor& x, const ForwardContext& context) const;

  // residual += x, then x = norm(residual), both [num_tokens, size].
  void forward_add(const Tensor& x, const Tensor& residual, const ForwardContext& context) const;
  // The same as the input of `next`, in the form in which it multiplies; x's memory comes along.
  LinearInput forward_add(const Tensor& x,
                          const Tensor& residual,
                          const LinearBase& next,
                          const ForwardContext& context) const;

  const Tensor& weight() const { return weight_.data(); }
  float eps() const { return eps_; }

 private:
  Parameter weight_;  // [size]
  float eps_;
};

}  // namespace atom
