// How a linear layer stores its weight and multiplies by it: one class per quantisation. The layer
// says which part of the weight this rank holds (LinearPartition); the method decides which
// parameters exist for it.
#pragma once

#include <memory>

#include "layers/linear/linear_partition.h"
#include "nn/build_context.h"
#include "nn/module.h"
#include "tensor/stream.h"
#include "tensor/workspace.h"

namespace atom {

class LinearMethod : public Module {
 public:
  // y = x Wᵀ + bias. x [num_tokens, local_in_features], y [num_tokens, local_out_features];
  // `bias` [local_out_features] or undefined.
  virtual void apply(const Stream& stream,
                     const Tensor& x,
                     const Tensor& bias,
                     const Tensor& y,
                     Workspace& workspace) const = 0;
};

// The method that the checkpoint's quantisation asks for. When parts of a merged layer ask for
// different ones, the construction of the model fails.
std::unique_ptr<LinearMethod> make_linear_method(BuildContext& build,
                                                 const LinearPartition& partition);

}  // namespace atom
