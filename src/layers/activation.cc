#include "layers/activation.h"

#include "ops/silu_and_mul/silu_and_mul.h"

namespace atom {

Tensor silu_and_mul(const Tensor& gate_up, const ForwardContext& context) {
  const Tensor out =
      context.workspace.tensor({gate_up.size(0), gate_up.size(1) / 2}, gate_up.dtype());
  ops::silu_and_mul(context.stream, gate_up, out);
  return out;
}

}  // namespace atom
