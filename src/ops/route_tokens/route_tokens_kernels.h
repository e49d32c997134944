// Inside route_tokens: what its kernel takes.
#pragma once

#include "ops/moe_route/moe_route_kernels.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

// Of a call: each has a block of the cluster that makes its choice.
constexpr int kMaxClusterTokens = 8;
constexpr int kClusterRouterColumns = 32;  // hidden_size is a multiple of it

// The norm that gives x: residual += update, and x = rms_norm(residual) * weight.
struct RouterNormArgs {
  const void* update = nullptr;  // like x; null: x is there
  void* residual = nullptr;      // likewise, read and written
  const void* weight = nullptr;  // [hidden_size] float32 or bfloat16
  int64_t update_stride = 0, residual_stride = 0;
  float eps = 0;
  bool has_float32_weight = false;
};

constexpr int kMaxNormedColumns = 4096;  // that blocks have room for

struct RouteTokensArgs {
  MoeRouteArgs route;  // logits and row_stride are unused
  void* x;             // [num_tokens, hidden_size] bfloat16, rows of whole vectors
  const void* weight;  // [num_logits or more, hidden_size] bfloat16, likewise
  const float* bias;   // [num_logits], or null
  float* products;     // [num_tokens, products_stride], of which num_logits are written
  int64_t x_stride, products_stride;
  int hidden_size, num_logits;
  RouterNormArgs norm;
};

// May start before the kernel before it ends.
gpuError_t launch_route_tokens(const RouteTokensArgs& args, gpuStream_t stream);

}  // namespace atom::ops
