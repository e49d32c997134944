// Inside moe_route and what is made of it: checked calls, and calls by a variant of one's choice,
// for tests.
#pragma once

#include <string_view>

#include "ops/moe_route/moe_route.h"
#include "ops/moe_route/moe_route_kernels.h"

namespace atom::ops {

// Ends the process unless the tensors go together.
MoeRouteArgs checked_moe_route(const Tensor& logits,
                               const Tensor& selection_bias,
                               const MoeRouting& routing,
                               const Tensor& ids,
                               const Tensor& weights);

// False, with nothing done, when the variant cannot run this call here.
bool moe_route_by(std::string_view variant,
                  const Stream& stream,
                  const Tensor& logits,
                  const Tensor& selection_bias,
                  const MoeRouting& routing,
                  const Tensor& ids,
                  const Tensor& weights);

}  // namespace atom::ops
