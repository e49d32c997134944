// Experts whose matrices the checkpoint has in floats: kept in the model's dtype, or quantized
// while they are loaded, each row of a matrix as online quantization does it in linear layers.
#pragma once

#include <string>
#include <vector>

#include "config/quant_config.h"
#include "layers/moe/expert_stack.h"
#include "nn/build_context.h"

namespace atom {

// An error that says why experts of this layout cannot be quantized by `scheme` while loading.
Status check_online_experts(const QuantScheme& scheme,
                            const ExpertStackLayout& layout,
                            const std::string& name);

class FloatExperts : public ExpertMatrices {
 public:
  // `scheme` is unquantized, or has passed check_online_experts().
  FloatExperts(const BuildContext& build,
               const QuantScheme& scheme,
               const ExpertStackLayout& layout);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;
  std::span<const ops::LinearWeight> weights() const override { return weights_; }
  ops::CodeFormat input() const override { return input_; }

 private:
  Tensor rows_of(const Stream& stream, int64_t expert) const;
  void quantize(const Stream& stream);

  const QuantScheme scheme_;
  const ops::QuantFormat format_;
  const ops::CodeFormat input_;
  const int64_t out_features_;
  const int64_t in_features_;
  const bool is_transposed_;
  Parameter weight_;  // the stack as the checkpoint has it; then empty
  std::vector<ops::LinearWeight> weights_;
};

}  // namespace atom
