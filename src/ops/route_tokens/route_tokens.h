// From tokens to their experts: the linear layer that gives a router's logits, and what moe_route()
// makes of them; and the norm before.
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

// The norm before a router: residual = cast(update + residual), x = rms_norm(residual).
struct RouterNorm {
  Tensor update;    // [T, H] x's dtype
  Tensor residual;  // likewise; read and written
  Tensor weight;    // [H] x's dtype or float32
  float eps = 0;
};

// add_rms_norm() into x, then as above.
void add_norm_route_tokens(const Stream& stream,
                           const RouterNorm& norm,
                           const Tensor& x,  // [T, H]; written
                           const LinearWeight& weight,
                           const Tensor& bias,
                           const Tensor& selection_bias,
                           const MoeRouting& routing,
                           int64_t num_logits,
                           const Tensor& products,
                           const Tensor& ids,
                           const Tensor& weights,
                           Workspace& scratch);

}  // namespace atom::ops
