#include "ops/linear_silu_and_mul/linear_silu_and_mul.h"

#include "ops/linear_silu_and_mul/linear_silu_and_mul_variants.h"
#include "ops/quantize/quantize.h"
#include "ops/silu_and_mul/silu_and_mul.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

// The product, in scratch memory.
Tensor multiply(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  const Tensor product = scratch.tensor({call.x.size(0), call.weight.out_features}, call.y.dtype());
  if (call.x_scales.defined()) {
    linear(stream, call.x, call.x_scales, call.weight, call.bias, product, scratch);
  } else {
    linear(stream, call.x, call.weight, call.bias, product, scratch);
  }
  return product;
}

void multiply_then_activate(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  silu_and_mul(stream, multiply(stream, call, scratch), call.y);
}

#ifdef ATOM_CUDA
// A forced variant of linear has the last word: it is how results are compared.
template <bool (*fits)(const LinearCall&)>
bool fits_unforced(const LinearCall& call) {
  return forced_variant("linear").empty() && is_unpacked(call) && fits(call);
}

template <bool (*fits)(const LinearCall&)>
bool fits_in_groups(const LinearCall& call) {
  return forced_variant("linear").empty() && is_float8_in_groups(call) && fits(call);
}

template <bool (*fits)(const LinearCall&)>
bool fits_either(const LinearCall& call) {
  return fits_unforced<fits>(call) || fits_in_groups<fits>(call);
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
     fits_either<fits_linear_skinny>,
     linear_skinny,
     DeviceType::kCuda,
     kMixesRows},
    {"composed-groups",
     CpuIsa::kScalar,
     fits_in_groups<fits_library_blocks>,
     multiply_then_activate,
     DeviceType::kCuda,
     kMixesRows},
    {"blocks",
     CpuIsa::kScalar,
     fits_in_groups<fits_linear_blocks>,
     linear_blocks,
     DeviceType::kCuda},
    {"wgmma",
     CpuIsa::kScalar,
     fits_unforced<fits_linear_wgmma>,
     linear_wgmma,
     DeviceType::kCuda,
     kMixesRows},
    {"ordered",
     CpuIsa::kScalar,
     fits_unforced<fits_linear_ordered>,
     linear_ordered,
     DeviceType::kCuda},
    {"composed", CpuIsa::kScalar, nullptr, multiply_then_activate, DeviceType::kCuda},
#endif
    {"composed", CpuIsa::kScalar, nullptr, multiply_then_activate},
};

// Whether the call falls back to linear and silu_and_mul, which trace themselves. The fallback
// needs more scratch memory, so that dry runs assume it.
bool is_composed(const Stream& stream, const LinearCall& call) {
  if (stream.is_dry_run()) return true;
  const LinearVariant& variant = pick_variant(
      "linear_silu_and_mul", kVariants, stream.device().type, call, stream.has_fixed_rows());
  return variant.launch == multiply_then_activate;
}

void run(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  check_linear_call("linear_silu_and_mul", call, call.y.dtype());
  if (call.x.size(0) == 0) return;
  if (is_composed(stream, call)) return multiply_then_activate(stream, call, scratch);
  const auto& variant = pick_variant(
      "linear_silu_and_mul", kVariants, stream, call, [&] { return linear_work(call); });
  variant.launch(stream, call, scratch);
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
  CHECK(x.dtype() == weight.dtype());
  CHECK(y.dtype() == x.dtype());
  run(stream, {x, weight, bias, y, {}, true}, scratch);
}

void linear_silu_and_mul(const Stream& stream,
                         const Tensor& x,
                         const Tensor& x_scales,
                         const LinearWeight& weight,
                         const Tensor& bias,
                         const Tensor& y,
                         Workspace& scratch) {
  CHECK(weight.is_quantized());
  CHECK(x_scales.defined());
  dispatch_float(y.dtype(), [](auto) {});
  run(stream, {x, weight, bias, y, x_scales, true}, scratch);
}

void linear_silu_and_mul_quantized(const Stream& stream,
                                   const Tensor& x,
                                   const Tensor& x_scales,
                                   const LinearWeight& weight,
                                   const Tensor& bias,
                                   DType dtype,
                                   const QuantizedRows& y,
                                   Workspace& scratch) {
  if (x.size(0) == 0) return;
  const Workspace::Scope scope(scratch);
  const Tensor shape = Tensor::meta({x.size(0), weight.out_features / 2}, dtype);
  const LinearCall planned = {x, weight, bias, shape, x_scales, true};
  check_linear_call("linear_silu_and_mul", planned, dtype);
  if (is_composed(stream, planned)) {
    return silu_and_mul(stream, multiply(stream, planned, scratch), Tensor(), y, scratch);
  }
  const Tensor rows = scratch.tensor(shape.shape(), dtype);
  run(stream, {x, weight, bias, rows, x_scales, true}, scratch);
  quantize(stream, rows, y);
}

}  // namespace atom::ops
