#include "ops/linear_silu_and_mul/linear_silu_and_mul.h"

#include "ops/linear_silu_and_mul/linear_silu_and_mul_variants.h"
#include "ops/silu_and_mul/silu_and_mul.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

void multiply_then_activate(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const Tensor product = scratch.tensor({call.x.size(0), call.weight.out_features}, call.y.dtype());
  linear(stream, call.x, call.weight, call.bias, product, scratch);
  silu_and_mul(stream, product, call.y);
}

#ifdef ATOM_CUDA
// A forced variant of linear has the last word: it is how results are compared.
template <bool (*fits)(const LinearCall&)>
bool fits_unforced(const LinearCall& call) {
  return forced_variant("linear").empty() && fits(call);
}
#endif

constexpr LinearVariant kVariants[] = {
#ifdef ATOM_CUDA
    {"stream",
     CpuIsa::kScalar,
     fits_unforced<fits_linear_stream>,
     linear_stream,
     DeviceType::kCuda,
     kMixesRows},
    {"skinny",
     CpuIsa::kScalar,
     fits_unforced<fits_linear_skinny>,
     linear_skinny,
     DeviceType::kCuda,
     kMixesRows},
    {"wgmma",
     CpuIsa::kScalar,
     fits_unforced<fits_linear_wgmma>,
     linear_wgmma,
     DeviceType::kCuda,
     kMixesRows},
    {"composed", CpuIsa::kScalar, nullptr, multiply_then_activate, DeviceType::kCuda},
#endif
    {"composed", CpuIsa::kScalar, nullptr, multiply_then_activate},
};

OperatorWork work_of(const LinearCall& call) {
  const LinearWeight& weight = call.weight;
  return {.bytes = moves(call.x, weight.data, call.bias, call.y).bytes,
          .flops = 2 * call.x.size(0) * weight.out_features * weight.in_features};
}

// By the operators that the call stands for, which note themselves; it takes more scratch memory.
bool is_composed(const Stream& stream, const LinearCall& call) {
  if (stream.is_dry_run()) return true;
  const LinearVariant& variant = pick_variant(
      "linear_silu_and_mul", kVariants, stream.device().type, call, stream.has_fixed_rows());
  return variant.launch == multiply_then_activate;
}

}  // namespace

std::span<const LinearVariant> linear_silu_and_mul_variants() {
  return kVariants;
}

void linear_silu_and_mul(const Stream& stream,
                         const Tensor& x,
                         const LinearWeight& weight,
                         const Tensor& bias,
                         const Tensor& y,
                         Workspace& scratch) {
  TensorCheck check("linear_silu_and_mul");
  check.tensor("x", x, {"T", "K"}, weight.dtype());
  check.tensor("y", y, {"T", "I"}, x.dtype());
  CHECK(check.size("K") == weight.in_features);
  CHECK(2 * check.size("I") == weight.out_features);
  if (x.size(0) == 0) return;
  const LinearCall call{x, weight, bias, y, {}, true};
  if (is_composed(stream, call)) return multiply_then_activate(stream, call, scratch);
  const auto& variant =
      pick_variant("linear_silu_and_mul", kVariants, stream, call, [&] { return work_of(call); });
  variant.launch(stream, call, scratch);
}

}  // namespace atom::ops
