#include "ops/sigmoid_gate/sigmoid_gate_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {

void sigmoid_gate_avx512(const SigmoidGateArgs& args, int64_t begin, int64_t end) {
  sigmoid_gate_rows<Avx512>(args, begin, end);
}

}  // namespace atom::ops
