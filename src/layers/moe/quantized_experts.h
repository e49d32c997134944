// Experts whose matrices are quantized in one of the ways that linear layers have: codes and scales
// of all experts stacked, cut by the boxes of the plain stack in units of their blocks.
#pragma once

#include <string>
#include <vector>

#include "config/quant_config.h"
#include "layers/moe/expert_stack.h"
#include "nn/build_context.h"

namespace atom {

// An error that says why experts of this scheme and layout cannot be computed with.
Status check_quantized_experts(const QuantScheme& scheme,
                               const ExpertStackLayout& layout,
                               const std::string& name);

class QuantizedExperts : public ExpertMatrices {
 public:
  // `scheme` has passed check_quantized_experts(). `in_rows_of_groups`: the one tensor of all
  // experts has a dimension for the bytes of a group of 32, [E, N, K / 32, 16].
  QuantizedExperts(const BuildContext& build,
                   const QuantScheme& scheme,
                   const ExpertStackLayout& layout,
                   bool in_rows_of_groups);

  // An error when the checkpoint holds NaN, or a scale that is no positive number.
  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;
  std::span<const ops::LinearWeight> weights() const override { return weights_; }
  ops::CodeFormat input() const override { return input_; }

 private:
  Status check_loaded(const Stream& stream) const;
  Tensor scales_of(int64_t expert) const;
  void pack_expert(const Stream& stream, int64_t expert);
  void place_on_device(const Stream& stream);

  const std::string name_;
  const Device device_;
  const QuantScheme scheme_;
  const std::vector<int64_t> part_rows_;  // of a matrix, each with scales of its own
  const ops::QuantFormat format_;
  ops::CodeFormat input_;
  Parameter weight_;        // [E, N, stored elements of a row], or [E, N, groups, 16] as it comes
  Parameter weight_scale_;  // [E, units of rows, units of columns]
  // [E, parts, 1] float32, of which the largest is that of all; null unless activations have static
  // scales.
  std::unique_ptr<Parameter> input_scale_;
  std::vector<ops::LinearWeight> weights_;  // by expert
};

}  // namespace atom
