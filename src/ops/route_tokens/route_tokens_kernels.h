// Inside route_tokens: what its kernel takes.
#pragma once

#include "ops/moe_route/moe_route_kernels.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kMaxRouterTokens = 8;  // of a call
constexpr int kRouterColumns = 32;   // hidden_size is a multiple of it
// Of a token, which 132 blocks give, 16 each: so many are on a card at once.
constexpr int kRouterSums = 132 * 16;

struct RouteTokensArgs {
  MoeRouteArgs route;  // logits and row_stride are unused
  const void* x;       // [num_tokens, hidden_size] bfloat16, rows of whole vectors
  const void* weight;  // [num_logits or more, hidden_size] bfloat16, likewise
  const float* bias;   // [num_logits], or null
  float* products;     // [num_tokens, products_stride], of which num_logits are written
  uint32_t* sums;      // [kMaxRouterTokens, kRouterSums], zero before and after
  int64_t x_stride, products_stride;
  int hidden_size, num_logits;
};

// May start before the kernel before it ends.
gpuError_t launch_route_tokens(const RouteTokensArgs& args, gpuStream_t stream);

}  // namespace atom::ops
