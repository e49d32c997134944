#include <cmath>

#include "ops/sigmoid_gate/sigmoid_gate_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {

void sigmoid_gate_reference(const SigmoidGateArgs& args, int64_t begin, int64_t end) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = row / args.num_heads, head = row % args.num_heads;
      const auto offset = [&](const int64_t(&strides)[2]) {
        return token * strides[0] + head * strides[1];
      };
      const T* x = static_cast<const T*>(args.x) + offset(args.x_strides);
      const T* gate = static_cast<const T*>(args.gate) + offset(args.gate_strides);
      T* out = static_cast<T*>(args.out) + offset(args.out_strides);
      for (int64_t i = 0; i < args.size; ++i) {
        const float z = to_float(gate[args.gate_per_row ? 0 : i]);
        const float gated = to_float(x[i]) / (1.0f + std::exp(-z));
        out[i] = from_float<T>(args.adds ? to_float(out[i]) + gated : gated);
      }
    }
  });
}

}  // namespace atom::ops
