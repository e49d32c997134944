// What all linear layers share: y = x Wᵀ (+ b) over the part of W that this rank holds. Derived
// classes say which part; the LinearMethod says how it is stored.
#pragma once

#include <memory>
#include <string_view>

#include "layers/activation.h"
#include "layers/linear/linear_partition.h"
#include "layers/quant/linear_method.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"

namespace atom {

class LinearBase : public Module {
 public:
  // The form in which this layer reads its input fastest. It takes rows in any case.
  ActivationFormat wanted() const { return method_->wanted(); }

  // x [num_rows, local_in_features] -> y [num_rows, local_out_features] of the model's dtype.
  void forward(const Activation& x, const Tensor& y, const ForwardContext& context) const;
  // The same into a workspace tensor.
  Tensor forward(const Activation& x, const ForwardContext& context) const;

  // With parts gate and up: silu(gate) * up, [num_rows, local_out_features / 2] in the workspace,
  // as codes when `format` has them, else as rows.
  Activation forward_silu_and_mul(const Activation& x,
                                  const ActivationFormat& format,
                                  const ForwardContext& context) const;

  int64_t local_out_features() const { return local_out_features_; }

 protected:
  // Null with a bias, too (LinearMethod::plain_weight()).
  const ops::LinearWeight* plain_weight() const {
    return bias_ == nullptr ? method_->plain_weight() : nullptr;
  }

  // `adds_bias`: this rank is one of those that add it; all of them load it.
  LinearBase(BuildContext& build,
             const LinearPartition& partition,
             bool has_bias,
             bool adds_bias = true);

 private:
  Tensor bias() const { return adds_bias_ ? bias_->data() : Tensor(); }

  DType dtype_;
  int64_t local_out_features_;
  std::unique_ptr<LinearMethod> method_;
  std::unique_ptr<Parameter> bias_;  // [local_out_features]; null without
  bool adds_bias_;                   // there is one, and this rank adds it
};

// This rank's part of a dimension that tensor parallelism splits evenly.
ShardPart tensor_parallel_part(const BuildContext& build);

// The construction of the model fails when tensor parallelism, or so many ranks, cannot split
// `count` of `what` ("attention heads") evenly. What is built after that, and never used, is for
// one rank.
void require_even_split(BuildContext& build, int64_t count, std::string_view what);
void require_even_split(BuildContext& build,
                        int64_t count,
                        std::string_view what,
                        int32_t num_ranks);

}  // namespace atom
