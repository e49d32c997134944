// Inside moe_route: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/moe_route/moe_route_kinds.h"

namespace atom::ops {

struct MoeRouteArgs {
  const float* logits;
  const float* selection_bias;  // null: zeros
  int32_t* ids;
  float* weights;
  int64_t num_tokens;
  int64_t num_experts;
  int64_t row_stride;  // of logits, in elements
  MoeRouting routing;
};

// What keeps a sum of weights that are all zero from dividing by zero.
constexpr float kLeastWeightSum = 1e-20f;

void moe_route_reference(const MoeRouteArgs& args, int64_t begin, int64_t end);  // tokens

// On a GPU's queue (DeviceQueue::handle()).
void moe_route_cuda(const MoeRouteArgs& args, void* queue);

}  // namespace atom::ops
