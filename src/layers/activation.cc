#include "layers/activation.h"

#include "base/env.h"
#include "ops/silu_and_mul/silu_and_mul.h"
#include "ops/silu_and_mul_quant_fp8/silu_and_mul_quant_fp8.h"

namespace atom {

LinearInput silu_and_mul(const Tensor& gate_up,
                         const LinearBase& next,
                         const ForwardContext& context) {
  if (env().fused_silu_mul_quant) {
    const ops::QuantisedRows codes = next.quantised_input(context);
    if (codes.values.defined()) {
      ops::silu_and_mul_quant_fp8(context.stream, gate_up, codes);
      return {Tensor(), codes};
    }
  }
  const Tensor out =
      context.workspace.tensor({gate_up.size(0), gate_up.size(1) / 2}, gate_up.dtype());
  ops::silu_and_mul(context.stream, gate_up, out);
  return out;
}

}  // namespace atom
