// The matrices of one projection of all experts, stacked [num_experts, out_features, in_features].
// The stack says which parts of which tensors of the checkpoint it takes; how the matrices are
// stored is one of the quantizations that linear layers have.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "config/quant_config.h"
#include "nn/build_context.h"
#include "nn/module.h"
#include "ops/linear/linear.h"
#include "ops/quantize/quantized_rows.h"

namespace atom {

struct ExpertStackLayout {
  Shape shape;  // this rank's: [num_experts, out_features, in_features]
  // Ways in which checkpoints store the stack, each a list of slices that cover it. Of a transposed
  // stack they speak of [num_experts, in_features, out_features].
  std::vector<std::vector<ParameterSlice>> alternatives;
  bool is_transposed = false;  // tensors are [num_experts, in_features, out_features]: y = x W
  // Matrices in MXFP4 are kept as images: ops::keeps_expert_images().
  bool keeps_images = false;
  // One slice that covers the biases [num_experts, out_features]; none: there are no biases.
  std::vector<ParameterSlice> bias;
};

// How the matrices are stored and packed.
class ExpertMatrices : public Module {
 public:
  // One for each expert; on a device slices of one tensor.
  virtual std::span<const ops::LinearWeight> weights() const = 0;
  // How what they multiply is quantized before.
  virtual ops::CodeFormat input() const { return {}; }
};

// As the scheme says, with the scales of the rows themselves, or --moe-activations, unless
// activations are to stay in the model's dtype. On a device those of experts do unless they are
// FP8, and even then where their shape has no kernel that reads codes; see ops::fused_moe().
ops::CodeFormat expert_input(const BuildContext& build, const QuantScheme& scheme);

class ExpertStack : public Module {
 public:
  // `build` names the module as the checkpoint's rules of packing do ("...experts.gate_up_proj"),
  // so that the quantization of its parts is found. One that experts cannot have fails the
  // construction of the model.
  ExpertStack(BuildContext& build, const ExpertStackLayout& layout);

  int64_t resident_bytes() const override;

  std::span<const ops::LinearWeight> weights() const { return matrices_->weights(); }
  ops::CodeFormat input() const { return matrices_->input(); }
  Tensor bias() const { return bias_ == nullptr ? Tensor() : bias_->data(); }

 private:
  std::unique_ptr<ExpertMatrices> matrices_;
  std::unique_ptr<Parameter> bias_;  // [num_experts, out_features]; null without
};

}  // namespace atom
