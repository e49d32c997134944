// Root-mean-square normalization over the last dimension, with a learned scale:
//   y = x / sqrt(mean(x^2) + eps) * weight
#pragma once

#include "layers/activation.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"

namespace atom {

// How the checkpoint's weight w multiplies, and in which precision.
enum class NormWeight {
  kModelDtype,    // by w, after the normalized row is rounded to the model's dtype (Llama)
  kFloat32,       // by w in float32, rounded once (gpt-oss)
  kZeroCentered,  // by 1 + w in float32, rounded once (Qwen3-Next)
};

class RMSNorm : public Module {
 public:
  RMSNorm(const BuildContext& build, int64_t size, NormWeight kind = NormWeight::kModelDtype);

  Status finish_load(const Stream& stream) override;

  // x [num_tokens, size] or [num_tokens, num_heads, size], normalized in place.
  void forward(const Tensor& x, const ForwardContext& context) const;

  // norm(x) of x [num_tokens, size], in the workspace.
  Activation forward(const Tensor& x,
                     const ActivationFormat& format,
                     const ForwardContext& context) const;

  // residual += x, both [num_tokens, size], then norm(residual), in the workspace. `is_part`: x is
  // this rank's part of what is added, the sum over the ranks that share layers; it is lost.
  Activation forward_add(const Tensor& x,
                         const Tensor& residual,
                         const ActivationFormat& format,
                         const ForwardContext& context,
                         bool is_part = false) const;

  // What the normalized row is multiplied by.
  const Tensor& weight() const {
    return kind_ == NormWeight::kZeroCentered ? one_plus_weight_ : weight_.data();
  }
  float eps() const { return eps_; }

 private:
  // x is a part of the sum where there are `ranks`.
  Activation normalize(const Tensor& x,
                       const Tensor& residual,
                       Communicator* ranks,
                       const ActivationFormat& format,
                       const ForwardContext& context) const;

  NormWeight kind_;
  bool leaves_codes_;
  bool adds_up_parts_;  // in the norm's kernel
  ParallelContext parallel_;
  Parameter weight_;        // [size], of the model's dtype or float32
  Tensor one_plus_weight_;  // [size] float32, of kZeroCentered; meta until finish_load
  float eps_;
};

}  // namespace atom
