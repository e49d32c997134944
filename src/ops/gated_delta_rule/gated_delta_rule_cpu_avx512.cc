#include "ops/gated_delta_rule/gated_delta_rule_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {

void gated_delta_rule_avx512(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task) {
  gated_delta_rule_task<Avx512>(args, task);
}

}  // namespace atom::ops
