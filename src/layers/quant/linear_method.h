// How a linear layer stores its weight and multiplies by it: one class per quantization. The layer
// says which part of the weight this rank holds (LinearPartition); the method decides which
// parameters exist for it.
#pragma once

#include <memory>

#include "layers/activation.h"
#include "layers/linear/linear_partition.h"
#include "nn/build_context.h"
#include "nn/module.h"
#include "ops/linear/linear.h"
#include "tensor/stream.h"
#include "tensor/workspace.h"

namespace atom {

class LinearMethod : public Module {
 public:
  // The form in which apply() reads x fastest.
  virtual ActivationFormat wanted() const { return {}; }

  // Where a method multiplies rows by a weight in their dtype and does nothing else: the weight,
  // [local_out_features, local_in_features]. Else null.
  virtual const ops::LinearWeight* plain_weight() const { return nullptr; }

  // y = x Wᵀ + bias. x [num_rows, local_in_features], whose codes are taken if wanted() takes them,
  // else its rows; y [num_rows, local_out_features]; `bias` [local_out_features] or undefined.
  virtual void apply(const Stream& stream,
                     const Activation& x,
                     const Tensor& bias,
                     const Tensor& y,
                     Workspace& workspace) const = 0;

  // With parts gate and up, y [num_rows, local_out_features / 2] = silu(gate) * up, rounded to
  // `dtype`: into y.codes when they are defined, else into y.rows.
  virtual void apply_silu_and_mul(const Stream& stream,
                                  const Activation& x,
                                  const Tensor& bias,
                                  const Activation& y,
                                  DType dtype,
                                  Workspace& workspace) const;
};

// The method that the checkpoint's quantization asks for. When parts of a merged layer ask for
// different ones, the construction of the model fails.
std::unique_ptr<LinearMethod> make_linear_method(BuildContext& build,
                                                 const LinearPartition& partition);

}  // namespace atom
