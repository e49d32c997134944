#include "ops/simd/avx2.h"

#include "ops/attention/attention_simd.h"

namespace atom::ops {

void attention_avx2(const AttentionArgs& args, const AttentionTask& task, int64_t kv_head) {
  using Math = Float32Math<Avx2, 2>;
  switch (args.element) {
    case Element::kFloat32:
      return attend<Math, float>(args, task, kv_head);
    case Element::kFloat16:
      return attend<Math, Float16Bits>(args, task, kv_head);
    case Element::kBFloat16:
      return attend<Math, BFloat16Bits>(args, task, kv_head);
  }
}

}  // namespace atom::ops
