#include "ops/moe_route/moe_route.h"

#include <string>

#include "ops/moe_route/moe_route_kernels.h"
#include "ops/moe_route/moe_route_variants.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

void check_routing(const MoeRouting& routing, int64_t num_experts) {
  CHECK(num_experts <= kMaxRoutedExperts);
  CHECK(routing.num_shared >= 0);
  CHECK(routing.shared_rank >= 0);
  CHECK(routing.shared_rank < routing.shared_world);
  CHECK(routing.num_groups >= 1);
  CHECK(routing.num_groups <= kMaxRoutedGroups);
  CHECK(num_experts % routing.num_groups == 0);
  CHECK(routing.num_top_groups >= 1);
  CHECK(routing.num_top_groups <= routing.num_groups);
  CHECK(routing.top_k >= 1);
  CHECK(routing.top_k <= kMaxRoutedTopK);
  CHECK(routing.top_k <= num_experts / routing.num_groups * routing.num_top_groups);
}

void on_pool(const Stream& stream, const MoeRouteArgs& args) {
  constexpr int64_t kTokensPerTask = 8;
  stream.pool().parallel_for(args.num_tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
    moe_route_reference(args, begin, end);
  });
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream, const MoeRouteArgs& args) {
  if (args.num_tokens > 0) moe_route_cuda(args, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const MoeRouteArgs&);

constexpr Variant<MoeRouteArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, on_pool},
};

}  // namespace

MoeRouteArgs checked_moe_route(const Tensor& logits,
                               const Tensor& selection_bias,
                               const MoeRouting& routing,
                               const Tensor& ids,
                               const Tensor& weights) {
  const std::string num_choices = std::to_string(routing.top_k + routing.num_shared);
  TensorCheck check("moe_route");
  check.tensor("logits", logits, {"T", "E+gates"}, DType::kFloat32)
      .contiguous("ids", ids, {"T", num_choices.c_str()}, DType::kInt32)
      .contiguous("weights", weights, {"T", num_choices.c_str()}, DType::kFloat32);
  const bool has_bias = selection_bias.defined();
  const int64_t num_experts = logits.size(1) - routing.num_gates();
  const std::string experts = std::to_string(num_experts);
  if (has_bias) {
    check.contiguous("selection_bias", selection_bias, {experts.c_str()}, DType::kFloat32);
  }
  check_routing(routing, num_experts);
  return {
      .logits = static_cast<const float*>(logits.raw_data()),
      .selection_bias = has_bias ? static_cast<const float*>(selection_bias.raw_data()) : nullptr,
      .ids = static_cast<int32_t*>(ids.raw_data()),
      .weights = static_cast<float*>(weights.raw_data()),
      .num_tokens = logits.size(0),
      .num_experts = num_experts,
      .row_stride = logits.stride(0),
      .routing = routing,
  };
}

void moe_route(const Stream& stream,
               const Tensor& logits,
               const Tensor& selection_bias,
               const MoeRouting& routing,
               const Tensor& ids,
               const Tensor& weights) {
  const MoeRouteArgs args = checked_moe_route(logits, selection_bias, routing, ids, weights);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant(
      "moe_route", kVariants, stream, args, [&] { return moves(logits, ids, weights); });
  variant.launch(stream, args);
}

bool moe_route_by(std::string_view variant_name,
                  const Stream& stream,
                  const Tensor& logits,
                  const Tensor& selection_bias,
                  const MoeRouting& routing,
                  const Tensor& ids,
                  const Tensor& weights) {
  const MoeRouteArgs args = checked_moe_route(logits, selection_bias, routing, ids, weights);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args);
  return true;
}

}  // namespace atom::ops
