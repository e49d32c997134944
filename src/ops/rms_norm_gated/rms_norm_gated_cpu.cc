#include <cmath>

#include "ops/rms_norm_gated/rms_norm_gated_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {

void rms_norm_gated_reference(const RmsNormGatedArgs& args, int64_t begin, int64_t end) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = row / args.num_heads, head = row % args.num_heads;
      const T* x = static_cast<const T*>(args.x) + token * args.x_stride + head * args.size;
      const T* gate =
          static_cast<const T*>(args.gate) + token * args.gate_stride + head * args.size;
      T* out = static_cast<T*>(args.out) + token * args.out_stride + head * args.size;
      float squares = 0;
      for (int64_t i = 0; i < args.size; ++i) squares += to_float(x[i]) * to_float(x[i]);
      const float scale = 1.0f / std::sqrt(squares / static_cast<float>(args.size) + args.eps);
      for (int64_t i = 0; i < args.size; ++i) {
        const float z = to_float(gate[i]);
        out[i] = from_float<T>(to_float(x[i]) * scale * args.weight[i] * z / (1 + std::exp(-z)));
      }
    }
  });
}

}  // namespace atom::ops
