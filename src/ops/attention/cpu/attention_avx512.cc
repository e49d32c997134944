#include "ops/attention/cpu/bfloat16_avx512.h"

#include "ops/attention/cpu/attention_simd.h"
#include "ops/attention/cpu/float32_math.h"

namespace atom::ops {

void attention_avx512(const AttentionArgs& args, const AttentionTask& task) {
  using Math = Float32Math<Avx512, 4>;
  switch (args.element) {
    case Element::kFloat32:
      return attend<Math, float>(args, task);
    case Element::kFloat16:
      return attend<Math, Float16Bits>(args, task);
    case Element::kBFloat16:
      return attend<BFloat16Math, BFloat16Bits>(args, task);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
