// The variants of route_tokens, for its dispatch and its test.
#pragma once

#include <span>

#include "ops/moe_route/moe_route_kernels.h"
#include "ops/route_tokens/route_tokens.h"
#include "ops/variant.h"

namespace atom::ops {

// One checked call; see route_tokens().
struct RouteTokensCall {
  const Tensor& x;
  const LinearWeight& weight;
  const Tensor& bias;
  const Tensor& selection_bias;
  const MoeRouting& routing;
  int64_t num_logits;
  const Tensor& products;
  const Tensor& ids;
  const Tensor& weights;

  Tensor logits() const { return products.narrow(1, 0, num_logits); }
};

using RouteTokensLaunch = void(const Stream&, const RouteTokensCall&, Workspace&);
using RouteTokensVariant = Variant<RouteTokensCall, RouteTokensLaunch>;

std::span<const RouteTokensVariant> route_tokens_variants();

// On a Hopper GPU, spread over its multiprocessors in one launch: up to eight tokens in bfloat16.
bool fits_route_tokens_spread(const RouteTokensCall& call);
void route_tokens_spread(const Stream& stream, const RouteTokensCall& call, Workspace& scratch);

}  // namespace atom::ops
