#include "ops/gated_delta_rule/gated_delta_rule_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void gated_delta_rule_avx2(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task) {
  gated_delta_rule_task<Avx2>(args, task);
}

}  // namespace atom::ops
