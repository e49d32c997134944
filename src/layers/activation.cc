#include "layers/activation.h"

#include "base/env.h"
#include "ops/silu_and_mul/silu_and_mul.h"

namespace atom {

LinearInput silu_and_mul(const LinearInput& x,
                         const LinearBase& gate_up,
                         const LinearBase& next,
                         const ForwardContext& context) {
  // For few rows the product is activated where it is summed up, and quantised by a kernel that has
  // less to do.
  if (env().fused_silu_mul_quant && !gate_up.activates(x, context)) {
    const ops::QuantizedRows codes = next.quantised_input(context);
    if (codes.values.defined()) {
      ops::silu_and_mul(
          context.stream, gate_up.forward(x, context), Tensor(), codes, context.workspace);
      return {Tensor(), codes};
    }
  }
  const Tensor out =
      context.workspace.tensor({x.rows.size(0), gate_up.local_out_features() / 2}, x.rows.dtype());
  gate_up.forward_silu_and_mul(x, out, context);
  return out;
}

}  // namespace atom
