#include "ops/simd/avx2.h"

#include "ops/attention/cpu/attention_simd.h"
#include "ops/attention/cpu/float32_math.h"

namespace atom::ops {

void attention_avx2(const AttentionArgs& args, const AttentionTask& task) {
  using Math = Float32Math<Avx2, 2>;
  switch (args.element) {
    case Element::kFloat32:
      return attend<Math, float>(args, task);
    case Element::kFloat16:
      return attend<Math, Float16Bits>(args, task);
    case Element::kBFloat16:
      return attend<Math, BFloat16Bits>(args, task);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
