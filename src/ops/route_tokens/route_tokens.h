// From tokens to their experts: the linear layer that gives a router's logits, and what moe_route()
// makes of them.
#pragma once

#include <cstdint>

#include "ops/linear/linear.h"
#include "ops/moe_route/moe_route_kinds.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// A token's first `num_logits` products are its logits: those of the experts, then those of gates.
// What is behind them comes of rows of the weight that stand for nothing, and need not be written.
void route_tokens(const Stream& stream,
                  const Tensor& x,               // [T, H]
                  const LinearWeight& weight,    // [N, H], N >= num_logits
                  const Tensor& bias,            // [N], or undefined
                  const Tensor& selection_bias,  // [E] float32, or undefined
                  const MoeRouting& routing,
                  int64_t num_logits,      // E + num_gates()
                  const Tensor& products,  // [T, N] float32
                  const Tensor& ids,       // [T, top_k + num_shared] int32
                  const Tensor& weights,   // [T, top_k + num_shared] float32
                  Workspace& scratch);

}  // namespace atom::ops
