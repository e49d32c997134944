// How a linear layer stores its weight and multiplies by it: one class per quantisation. The layer
// says which part of the weight this rank holds (LinearPartition); the method decides which
// parameters exist for it.
#pragma once

#include <memory>

#include "layers/linear/linear_input.h"
#include "layers/linear/linear_partition.h"
#include "nn/build_context.h"
#include "nn/module.h"
#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/workspace.h"

namespace atom {

// The form in which a linear multiplies its input.
enum class InputFormat {
  kFloat,
  kFloat8PerToken,  // with a scale for each token
  kFloat8Static,    // with the scale of the checkpoint
};

class LinearMethod : public Module {
 public:
  // y = x Wᵀ + bias. x [num_tokens, local_in_features], y [num_tokens, local_out_features];
  // `bias` [local_out_features] or undefined.
  virtual void apply(const Stream& stream,
                     const Tensor& x,
                     const Tensor& bias,
                     const Tensor& y,
                     Workspace& workspace) const = 0;

  // Unless it is kFloat, apply_quantised() takes x as the operator that computes it has quantised
  // it, and gives what apply() does.
  virtual InputFormat input_format() const { return InputFormat::kFloat; }
  virtual Tensor input_scale() const { return {}; }  // kFloat8Static: [1] float32
  virtual void apply_quantised(const Stream& stream,
                               const ops::QuantizedRows& x,
                               const Tensor& bias,
                               const Tensor& y,
                               Workspace& workspace) const;

  // Whether apply_silu_and_mul() is one kernel for this input in FP8.
  virtual bool activates(const Stream& stream,
                         const ops::QuantizedRows& x,
                         const Tensor& bias,
                         DType y_dtype) const;

  // With parts gate and up, y [num_tokens, local_out_features / 2] = silu(gate) * up.
  virtual void apply_silu_and_mul(const Stream& stream,
                                  const LinearInput& x,
                                  const Tensor& bias,
                                  const Tensor& y,
                                  Workspace& workspace) const;
};

// The method that the checkpoint's quantisation asks for. When parts of a merged layer ask for
// different ones, the construction of the model fails.
std::unique_ptr<LinearMethod> make_linear_method(BuildContext& build,
                                                 const LinearPartition& partition);

}  // namespace atom
