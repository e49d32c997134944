// The router of a mixture of experts: from a token's logits to the experts that compute it and the
// weights that their results are added with.
//
// The top_k experts of the largest scores are chosen, in descending order, of equal ones that of
// the lowest id first. A selection bias counts for the choice alone. With groups of consecutive
// experts the best groups are found first, by the same rule, and only their experts may be chosen.
// Softmax scores without a bias are compared as logits, of which they are an ascending function.
// NaN is less than all else; that of a logit stays in the token's weights.
#pragma once

#include <cstdint>

#include "ops/moe_route/moe_route_kinds.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

void moe_route(const Stream& stream,
               const Tensor& logits,          // [T, E + num_gates()] float32, row stride allowed
               const Tensor& selection_bias,  // [E] float32, or undefined
               const MoeRouting& routing,
               const Tensor& ids,       // [T, top_k + num_shared] int32
               const Tensor& weights);  // [T, top_k + num_shared] float32

}  // namespace atom::ops
