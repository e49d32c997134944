// What all linear layers share: y = x Wᵀ (+ b) over the part of W that this rank holds. Derived
// classes say which part; the LinearMethod says how it is stored.
#pragma once

#include <memory>

#include "layers/linear/linear_input.h"
#include "layers/linear/linear_partition.h"
#include "layers/quant/linear_method.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"

namespace atom {

class LinearBase : public Module {
 public:
  // x [num_tokens, local_in_features] -> y [num_tokens, local_out_features] of x's dtype.
  void forward(const LinearInput& x, const Tensor& y, const ForwardContext& context) const;
  // The same into a workspace tensor.
  Tensor forward(const LinearInput& x, const ForwardContext& context) const;

  // With parts gate and up: y [num_tokens, local_out_features / 2] = silu(gate) * up.
  void forward_silu_and_mul(const LinearInput& x,
                            const Tensor& y,
                            const ForwardContext& context) const;

  // Whether that is one kernel for an input in FP8.
  bool activates(const LinearInput& x, const ForwardContext& context) const;

  // Where the operator that computes this layer's input can leave it in FP8: workspace tensors.
  // Undefined values: it is to be left in the model's dtype.
  ops::QuantizedRows quantised_input(const ForwardContext& context) const;

  int64_t local_out_features() const { return local_out_features_; }

 protected:
  LinearBase(BuildContext& build, const LinearPartition& partition, bool has_bias);

 private:
  Tensor bias() const { return bias_ == nullptr ? Tensor() : bias_->data(); }

  int64_t local_in_features_;
  int64_t local_out_features_;
  std::unique_ptr<LinearMethod> method_;
  std::unique_ptr<Parameter> bias_;  // [local_out_features]; null without
};

// This rank's part of a dimension that tensor parallelism splits evenly.
ShardPart tensor_parallel_part(const BuildContext& build);

}  // namespace atom
