// For tests of fused_moe on a GPU: a layer's experts there, and runs of one variant.
#pragma once

#include <optional>
#include <vector>

#include "ops/fused_moe/moe_test_layer.h"

namespace atom::ops::moe_test {

// The same matrices for a GPU: slices of one tensor, row-major or as images.
class StackedWeights {
 public:
  StackedWeights(const std::vector<LinearWeight>& weights,
                 const std::vector<StoredRows>& stored,
                 WeightLayout layout);

  std::vector<Tensor> tensors() const { return {data_, scales_}; }
  std::vector<LinearWeight> placed(const Placed& at) const;

 private:
  void make_images();

  LinearWeight like_;
  Tensor data_, scales_;
};

// False when the variant does not take the call.
bool run_on_gpu(const FusedMoeVariant& variant,
                const Layer& layer,
                const StackedWeights& gate_up,
                const StackedWeights& down,
                const Tensor& y);

// Those in which a GPU may have experts of a format.
std::vector<WeightLayout> layouts_of(const Sizes& sizes, const std::optional<QuantFormat>& format);

// Of x and of what is between the matrices.
bool reads_codes(const FusedMoeVariant& variant);

}  // namespace atom::ops::moe_test
