#include "ops/route_tokens/route_tokens.h"

#include "ops/moe_route/moe_route.h"
#include "ops/route_tokens/route_tokens_variants.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

void multiply_then_route(const Stream& stream, const RouteTokensCall& call, Workspace& scratch) {
  linear(stream, call.x, call.weight, call.bias, call.products, scratch);
  moe_route(stream, call.logits(), call.selection_bias, call.routing, call.ids, call.weights);
}

#ifdef ATOM_CUDA
// Forced variants of its parts have the last word: it is how results are compared.
bool fits_spread(const RouteTokensCall& call) {
  return forced_variant("linear").empty() && forced_variant("moe_route").empty() &&
         fits_route_tokens_spread(call);
}
#endif

constexpr RouteTokensVariant kVariants[] = {
#ifdef ATOM_CUDA
    {"spread", CpuIsa::kScalar, fits_spread, route_tokens_spread, DeviceType::kCuda, kMixesRows},
    {"composed", CpuIsa::kScalar, nullptr, multiply_then_route, DeviceType::kCuda},
#endif
    {"composed", CpuIsa::kScalar, nullptr, multiply_then_route},
};

void check_call(const RouteTokensCall& call) {
  const std::string num_products = std::to_string(call.weight.out_features);
  const std::string num_choices = std::to_string(call.routing.top_k + call.routing.num_shared);
  TensorCheck check("route_tokens");
  check.tensor("x", call.x, {"T", "H"}, call.x.dtype())
      .contiguous("products", call.products, {"T", num_products.c_str()}, DType::kFloat32)
      .contiguous("ids", call.ids, {"T", num_choices.c_str()}, DType::kInt32)
      .contiguous("weights", call.weights, {"T", num_choices.c_str()}, DType::kFloat32);
  CHECK(check.size("H") == call.weight.in_features);
  CHECK(call.num_logits > call.routing.num_gates());
  CHECK(call.num_logits <= call.weight.out_features);
}

// The parts trace themselves, and need the more scratch memory: dry runs assume them.
bool is_composed(const Stream& stream, const RouteTokensCall& call) {
  if (stream.is_dry_run()) return true;
  const RouteTokensVariant& variant =
      pick_variant("route_tokens", kVariants, stream.device().type, call, stream.has_fixed_rows());
  return variant.launch == multiply_then_route;
}

}  // namespace

std::span<const RouteTokensVariant> route_tokens_variants() {
  return kVariants;
}

void route_tokens(const Stream& stream,
                  const Tensor& x,
                  const LinearWeight& weight,
                  const Tensor& bias,
                  const Tensor& selection_bias,
                  const MoeRouting& routing,
                  int64_t num_logits,
                  const Tensor& products,
                  const Tensor& ids,
                  const Tensor& weights,
                  Workspace& scratch) {
  const RouteTokensCall call{
      x, weight, bias, selection_bias, routing, num_logits, products, ids, weights};
  check_call(call);
  if (x.size(0) == 0) return;
  if (is_composed(stream, call)) return multiply_then_route(stream, call, scratch);
  const auto& variant = pick_variant("route_tokens", kVariants, stream, call, [&] {
    OperatorWork work = moves(x, weight.data, products, ids, weights);
    work.flops = 2 * products.num_elements() * weight.in_features;
    return work;
  });
  variant.launch(stream, call, scratch);
}

}  // namespace atom::ops
