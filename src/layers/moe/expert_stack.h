// The matrices of one projection of all experts, stacked [num_experts, out_features, in_features].
// The stack says which parts of which tensors of the checkpoint it takes; how the matrices are
// stored is one of the quantizations that linear layers have.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nn/build_context.h"
#include "nn/module.h"
#include "ops/linear/linear.h"

namespace atom {

struct ExpertStackLayout {
  Shape shape;  // this rank's: [num_experts, out_features, in_features]
  // Ways in which checkpoints store the stack, each a list of slices that cover it. Of a transposed
  // stack they speak of [num_experts, in_features, out_features].
  std::vector<std::vector<ParameterSlice>> alternatives;
  bool is_transposed = false;  // tensors are [num_experts, in_features, out_features]: y = x W
  // One slice that covers the biases [num_experts, out_features]; none: there are no biases.
  std::vector<ParameterSlice> bias;
};

class ExpertStack : public Module {
 public:
  ExpertStack(const BuildContext& build, const ExpertStackLayout& layout);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  std::span<const ops::LinearWeight> weights() const { return weights_; }
  Tensor bias() const { return bias_ == nullptr ? Tensor() : bias_->data(); }

 private:
  Tensor rows_of(const Stream& stream, int64_t expert) const;

  int64_t out_features_;
  int64_t in_features_;
  bool is_transposed_;
  Parameter weight_;                        // the stack as the checkpoint has it; then empty
  std::unique_ptr<Parameter> bias_;         // [num_experts, out_features]; null without
  std::vector<ops::LinearWeight> weights_;  // by expert; on a device slices of one tensor
};

}  // namespace atom
