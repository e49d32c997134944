#include <cmath>

#include "ops/silu_and_mul/silu_and_mul_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {

void silu_and_mul_reference(const SiluAndMulArgs& args, int64_t begin, int64_t end) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t row = begin; row < end; ++row) {
      const T* gate = static_cast<const T*>(args.gate_up) + row * args.gate_up_stride;
      const T* up = gate + args.size;
      T* out = static_cast<T*>(args.out) + row * args.out_stride;
      for (int64_t i = 0; i < args.size; ++i) {
        const float x = to_float(gate[i]);
        out[i] = from_float<T>(x / (1.0f + std::exp(-x)) * to_float(up[i]));
      }
    }
  });
}

}  // namespace atom::ops
