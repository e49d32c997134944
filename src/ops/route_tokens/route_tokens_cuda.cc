// From a checked call to the kernel's one.
#include "ops/moe_route/moe_route_variants.h"
#include "ops/route_tokens/route_tokens_kernels.h"
#include "ops/route_tokens/route_tokens_variants.h"
#include "tensor/device_capability.h"
#include "tensor/gpu_check.h"

namespace atom::ops {
namespace {

constexpr int64_t kVectorBytes = 16;
static_assert(kMaxRouterTokens * kRouterSums <= Workspace::kNumCounters);

bool on_hopper() {
  return is_hopper({DeviceType::kCuda, 0});
}

bool has_whole_vectors(const Tensor& rows) {
  return reinterpret_cast<uintptr_t>(rows.raw_data()) % kVectorBytes == 0 &&
         rows.stride(0) * dtype_size(rows.dtype()) % kVectorBytes == 0;
}

}  // namespace

bool fits_route_tokens_spread(const RouteTokensCall& call) {
  static const bool hopper = on_hopper();
  const LinearWeight& weight = call.weight;
  const bool has_bias = call.bias.defined();
  return hopper && call.x.size(0) <= kMaxRouterTokens && call.x.dtype() == DType::kBFloat16 &&
         weight.dtype() == DType::kBFloat16 && weight.layout == WeightLayout::kRowMajor &&
         weight.in_features % kRouterColumns == 0 && has_whole_vectors(call.x) &&
         has_whole_vectors(weight.data) && (!has_bias || call.bias.dtype() == DType::kFloat32);
}

void route_tokens_spread(const Stream& stream, const RouteTokensCall& call, Workspace& scratch) {
  if (stream.is_dry_run()) return;
  const bool has_bias = call.bias.defined();
  const RouteTokensArgs args = {
      .route = checked_moe_route(
          call.logits(), call.selection_bias, call.routing, call.ids, call.weights),
      .x = call.x.raw_data(),
      .weight = call.weight.data.raw_data(),
      .bias = has_bias ? static_cast<const float*>(call.bias.raw_data()) : nullptr,
      .products = static_cast<float*>(call.products.raw_data()),
      .sums = reinterpret_cast<uint32_t*>(scratch.counters().data<int32_t>()),
      .x_stride = call.x.stride(0),
      .products_stride = call.products.stride(0),
      .hidden_size = static_cast<int>(call.weight.in_features),
      .num_logits = static_cast<int>(call.num_logits),
  };
  GPU_CHECK(launch_route_tokens(args, static_cast<gpuStream_t>(stream.queue().handle())));
}

}  // namespace atom::ops
