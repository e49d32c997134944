// A linear layer with a quantized weight, times activations in codes or in the model's dtype.
#pragma once

#include "layers/quant/linear_method.h"
#include "layers/quant/quantized_weight.h"

namespace atom {

class QuantizedLinearMethod : public LinearMethod {
 public:
  // `scheme` has passed check_quantized_weight().
  QuantizedLinearMethod(const BuildContext& build,
                        const QuantScheme& scheme,
                        const LinearPartition& partition);

  // Codes, unless the parts have static scales of their own.
  ActivationFormat wanted() const override;
  void apply(const Stream& stream,
             const Activation& x,
             const Tensor& bias,
             const Tensor& y,
             Workspace& workspace) const override;
  void apply_silu_and_mul(const Stream& stream,
                          const Activation& x,
                          const Tensor& bias,
                          const Activation& y,
                          DType dtype,
                          Workspace& workspace) const override;

 private:
  ActivationFormat codes_of(const QuantizedWeight::Part& part) const;
  void quantize_and_multiply(const Stream& stream,
                             const Tensor& x,
                             const Tensor& bias,
                             const Tensor& y,
                             Workspace& workspace) const;

  QuantizedWeight weight_;
};

}  // namespace atom
