// Builds without support for a GPU, which keep no images.
#include "base/check.h"
#include "ops/fused_moe/expert_images.h"

namespace atom::ops {

void turn_into_images(const Stream& stream, const Tensor&, int64_t) {
  CHECK(!stream.device().is_cpu());  // there is no other
}

}  // namespace atom::ops
