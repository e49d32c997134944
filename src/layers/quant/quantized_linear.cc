#include "layers/quant/quantized_linear.h"

#include "layers/quant/quantized_storage.h"
#include "ops/linear_silu_and_mul/linear_silu_and_mul.h"
#include "ops/quantize/quantize.h"

namespace atom {
QuantizedLinearMethod::QuantizedLinearMethod(const BuildContext& build,
                                             const QuantScheme& scheme,
                                             const LinearPartition& partition)
    : weight_(build, scheme, partition) {
  register_module("", &weight_);
}

ActivationFormat QuantizedLinearMethod::codes_of(const QuantizedWeight::Part& part) const {
  const QuantScheme& scheme = weight_.scheme();
  return {.rows = false,
          .codes = scheme.activations,
          .code_dtype = code_dtype(scheme.activation_dtype),
          .static_scale = part.input_scale};
}

ActivationFormat QuantizedLinearMethod::wanted() const {
  if (!weight_.quantizes_activations() || weight_.parts().size() > 1) return {};
  return codes_of(weight_.parts().front());
}

void QuantizedLinearMethod::apply(const Stream& stream,
                                  const Activation& x,
                                  const Tensor& bias,
                                  const Tensor& y,
                                  Workspace& workspace) const {
  const ops::LinearWeight& weight = weight_.parts().front().weight;
  if (wanted().takes(x.codes)) {
    ops::linear(stream, x.codes.values, x.codes.scales, weight, bias, y, workspace);
  } else if (weight_.quantizes_activations()) {
    quantize_and_multiply(stream, x.rows, bias, y, workspace);
  } else {
    ops::linear(stream, x.rows, weight, bias, y, workspace);
  }
}

void QuantizedLinearMethod::quantize_and_multiply(const Stream& stream,
                                                  const Tensor& x,
                                                  const Tensor& bias,
                                                  const Tensor& y,
                                                  Workspace& workspace) const {
  for (const QuantizedWeight::Part& part : weight_.parts()) {
    const Workspace::Scope scope(workspace);
    const ops::QuantizedRows codes = make_codes(codes_of(part), x.size(0), x.size(1), workspace);
    ops::quantize(stream, x, codes);
    ops::linear(stream,
                codes.values,
                codes.scales,
                part.weight,
                bias.defined() ? bias.narrow(0, part.first_row, part.num_rows) : bias,
                y.narrow(1, part.first_row, part.num_rows),
                workspace);
  }
}

void QuantizedLinearMethod::apply_silu_and_mul(const Stream& stream,
                                               const Activation& x,
                                               const Tensor& bias,
                                               const Activation& y,
                                               DType dtype,
                                               Workspace& workspace) const {
  if (!wanted().takes(x.codes)) {
    return LinearMethod::apply_silu_and_mul(stream, x, bias, y, dtype, workspace);
  }
  const ops::LinearWeight& weight = weight_.parts().front().weight;
  const ops::QuantizedRows& codes = x.codes;
  if (y.has_codes()) {
    ops::linear_silu_and_mul_quantized(
        stream, codes.values, codes.scales, weight, bias, dtype, y.codes, workspace);
  } else {
    ops::linear_silu_and_mul(stream, codes.values, codes.scales, weight, bias, y.rows, workspace);
  }
}

}  // namespace atom
