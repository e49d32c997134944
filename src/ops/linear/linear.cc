#include "ops/linear/linear.h"

#include <string>

#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_variants.h"
#include "tensor/dispatch.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

using linear_kernels::KernelTable;

using linear_kernels::Float8Tables;

// Of one instruction set.
struct Tables {
  const KernelTable& bfloat16;
  const KernelTable& float16;
  const KernelTable& float32;
  const Float8Tables& float8;
};

const KernelTable& table_for(const Tables& tables, const LinearCall& call) {
  const bool float8_weight = call.weight.dtype() == DType::kFloat8E4M3;
  const Float8Tables& float8 = tables.float8;
  switch (call.x.dtype()) {
    case DType::kFloat8E4M3:
      return call.y.dtype() == DType::kFloat16 ? float8.to_float16 : float8.to_bfloat16;
    case DType::kBFloat16:
      return float8_weight ? float8.bfloat16 : tables.bfloat16;
    case DType::kFloat16:
      return float8_weight ? float8.float16 : tables.float16;
    default:
      return float8_weight ? float8.float32 : tables.float32;
  }
}

constexpr Tables kAvx512 = {linear_kernels::kAvx512BFloat16,
                            linear_kernels::kAvx512Float16,
                            linear_kernels::kAvx512Float32,
                            linear_kernels::kAvx512Float8};
constexpr Tables kAvx2 = {linear_kernels::kAvx2BFloat16,
                          linear_kernels::kAvx2Float16,
                          linear_kernels::kAvx2Float32,
                          linear_kernels::kAvx2Float8};

void launch_avx512(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  linear_panels(table_for(kAvx512, call), stream, {&call, 1}, scratch);
}

void launch_avx2(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  linear_panels(table_for(kAvx2, call), stream, {&call, 1}, scratch);
}

#ifdef ATOM_CUDA
const float* scale_data(const Tensor& scales) {
  return scales.defined() ? static_cast<const float*>(scales.raw_data()) : nullptr;
}

bool is_per_row(const Tensor& scales) {
  return scales.defined() && scales.num_elements() > 1;
}

void launch_cuda(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run() || call.x.size(0) == 0) return;
  CHECK((call.weight.layout == WeightLayout::kRowMajor));
  const bool has_bias = call.bias.defined();
  linear_cuda({.x = call.x.raw_data(),
               .weight = call.weight.data.raw_data(),
               .bias = has_bias ? call.bias.raw_data() : nullptr,
               .x_scales = scale_data(call.x_scales),
               .weight_scales = scale_data(call.weight.scales),
               .y = call.y.raw_data(),
               .num_rows = call.x.size(0),
               .out_features = call.weight.out_features,
               .in_features = call.weight.in_features,
               .x_stride = call.x.stride(0),
               .y_stride = call.y.stride(0),
               .x_scale_per_row = is_per_row(call.x_scales),
               .weight_scale_per_row = is_per_row(call.weight.scales),
               .x_element = stored_element_of(call.x.dtype()),
               .weight_element = stored_element_of(call.weight.dtype()),
               .bias_element = stored_element_of(has_bias ? call.bias.dtype() : DType::kFloat32),
               .y_element = stored_element_of(call.y.dtype())},
              stream.queue().handle());
}
#endif

bool in_panels(const LinearCall& call) {
  return call.weight.layout == WeightLayout::kPanels;
}

constexpr LinearVariant kVariants[] = {
#ifdef ATOM_CUDA
    {"stream", CpuIsa::kScalar, fits_linear_stream, linear_stream, DeviceType::kCuda, kMixesRows},
    {"skinny", CpuIsa::kScalar, fits_linear_skinny, linear_skinny, DeviceType::kCuda, kMixesRows},
    {"cublaslt", CpuIsa::kScalar, fits_cublaslt, linear_cublaslt, DeviceType::kCuda, kMixesRows},
    {"wgmma", CpuIsa::kScalar, fits_linear_wgmma, linear_wgmma, DeviceType::kCuda, kMixesRows},
    {"expanded",
     CpuIsa::kScalar,
     fits_linear_expanded,
     linear_expanded,
     DeviceType::kCuda,
     kMixesRows},
    {"ordered", CpuIsa::kScalar, fits_linear_ordered, linear_ordered, DeviceType::kCuda},
    {"fixed", CpuIsa::kScalar, fits_linear_fixed, linear_fixed, DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, nullptr, launch_cuda, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, in_panels, launch_avx512},
    {"avx2", CpuIsa::kAvx2, in_panels, launch_avx2},
    {"reference", CpuIsa::kScalar, nullptr, linear_reference},
};

// One scale for all, or one each.
void check_scales(TensorCheck& check, const char* name, const Tensor& scales, const char* size) {
  check.contiguous(name, scales, {scales.num_elements() == 1 ? "1" : size}, DType::kFloat32);
}

void run(const Stream& stream, const LinearCall& call, DType dtype, Workspace& scratch) {
  check_linear_call("linear", call, dtype);
  if (call.x.size(0) == 0) return;
  const auto& variant =
      pick_variant("linear", kVariants, stream, call, [&] { return linear_work(call); });
  variant.launch(stream, call, scratch);
}

}  // namespace

void check_linear_call(const char* name, const LinearCall& call, DType dtype) {
  const LinearWeight& weight = call.weight;
  const auto dtype_or_float32 = [dtype](const Tensor& tensor) {
    return tensor.dtype() == DType::kFloat32 ? DType::kFloat32 : dtype;
  };
  const std::string features = std::to_string(weight.out_features);
  TensorCheck check(name);
  check.tensor("x", call.x, {"T", "K"}, call.x.dtype());
  check.tensor("y", call.y, {"T", "width"}, dtype_or_float32(call.y));
  CHECK(check.size("K") == weight.in_features);
  CHECK(check.size("width") * (call.is_gated ? 2 : 1) == weight.out_features);
  if (call.bias.defined()) {
    check.tensor("bias", call.bias, {features.c_str()}, dtype_or_float32(call.bias));
  }
  if (call.x_scales.defined()) check_scales(check, "x_scales", call.x_scales, "T");
  if (weight.scales.defined()) {
    check_scales(check, "weight.scales", weight.scales, features.c_str());
  }
}

OperatorWork linear_work(const LinearCall& call) {
  const LinearWeight& weight = call.weight;
  return {
      .bytes = moves(call.x, call.x_scales, weight.data, weight.scales, call.bias, call.y).bytes,
      .flops = 2 * call.x.size(0) * weight.out_features * weight.in_features,
      .is_fp8 = call.x.dtype() == DType::kFloat8E4M3};
}

void linear_many(const Stream& stream, std::span<const LinearCall> calls, Workspace& scratch) {
  const LinearCall& first = calls.front();
  const LinearVariant& variant = pick_variant("linear", kVariants, stream.device().type, first);
  if (variant.launch == launch_avx512) {
    linear_panels(table_for(kAvx512, first), stream, calls, scratch);
  } else if (variant.launch == launch_avx2) {
    linear_panels(table_for(kAvx2, first), stream, calls, scratch);
  } else {
    for (const LinearCall& call : calls) variant.launch(stream, call, scratch);
  }
}

std::span<const LinearVariant> linear_variants() {
  return kVariants;
}

void linear(const Stream& stream,
            const Tensor& x,
            const LinearWeight& weight,
            const Tensor& bias,
            const Tensor& y,
            Workspace& scratch) {
  if (weight.dtype() == DType::kFloat8E4M3) {
    dispatch_float(x.dtype(), [](auto) {});
  } else {
    CHECK(x.dtype() == weight.dtype());
    CHECK(!weight.scales.defined());
  }
  run(stream, {x, weight, bias, y}, x.dtype(), scratch);
}

void linear(const Stream& stream,
            const Tensor& x,
            const Tensor& x_scales,
            const LinearWeight& weight,
            const Tensor& bias,
            const Tensor& y,
            Workspace& scratch) {
  CHECK((x.dtype() == DType::kFloat8E4M3));
  CHECK((weight.dtype() == DType::kFloat8E4M3));
  CHECK(x_scales.defined());
  dispatch_float(y.dtype(), [](auto) {});
  run(stream, {x, weight, bias, y, x_scales}, y.dtype(), scratch);
}

}  // namespace atom::ops
