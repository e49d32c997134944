#include "ops/linear/linear.h"

#include <string>

#include "base/rounding.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_quantized_cuda.h"
#include "ops/linear/linear_variants.h"
#include "tensor/dispatch.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

#ifdef ATOM_CUDA
const float* scale_data(const Tensor& scales) {
  return scales.defined() ? static_cast<const float*>(scales.raw_data()) : nullptr;
}

bool is_per_row(const Tensor& scales) {
  return scales.defined() && scales.num_elements() > 1;
}

void launch_cuda(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run() || call.x.size(0) == 0) return;
  CHECK(call.weight.layout == WeightLayout::kRowMajor);
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

PackedValues packed_values(const Tensor& values, bool is_quantized, QuantDType dtype) {
  return {.data = values.raw_data(),
          .stride = values.stride(0),
          .is_quantized = is_quantized,
          .element = is_quantized ? Element::kFloat32 : stored_element_of(values.dtype()),
          .dtype = dtype};
}

QuantDType code_dtype(DType x) {
  if (x == DType::kInt8) return QuantDType::kInt8;
  return x == DType::kUInt8 ? QuantDType::kFloat4E2M1 : QuantDType::kFloat8E4M3;
}

void launch_quantized(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run() || call.x.size(0) == 0) return;
  const LinearWeight& weight = call.weight;
  CHECK(weight.layout == WeightLayout::kRowMajor);
  const bool has_bias = call.bias.defined();
  const Tensor& x_scales = call.x_scales;
  const auto is_e8m0 = [](const Tensor& scales) {
    return scales.defined() && scales.dtype() == DType::kUInt8;
  };
  linear_quantized_cuda(
      {.x = packed_values(call.x, x_scales.defined(), code_dtype(call.x.dtype())),
       .weight = packed_values(weight.data, true, weight.quant_dtype()),
       .bias = has_bias ? call.bias.raw_data() : nullptr,
       .x_scales = x_scales.raw_data(),
       .weight_scales = weight.scales.raw_data(),
       .y = call.y.raw_data(),
       .num_rows = call.x.size(0),
       .out_features = weight.out_features,
       .in_features = weight.in_features,
       .y_stride = call.y.stride(0),
       .group_size = weight.group_size,
       .scale_rows = weight.scale_rows,
       .x_scale_per_group = x_scales.defined() && x_scales.rank() == 2,
       .x_scale_per_row = is_per_row(x_scales),
       .weight_scale_per_row = is_per_row(weight.scales),
       .x_scales_are_e8m0 = is_e8m0(x_scales),
       .weight_scales_are_e8m0 = is_e8m0(weight.scales),
       .bias_element = stored_element_of(has_bias ? call.bias.dtype() : DType::kFloat32),
       .y_element = stored_element_of(call.y.dtype())},
      stream.queue().handle());
}

bool has_codes(const LinearCall& call) {
  return call.weight.is_quantized();
}

template <bool (*fits)(const LinearCall&)>
bool unpacked(const LinearCall& call) {
  return is_unpacked(call) && fits(call);
}

template <bool (*fits)(const LinearCall&)>
bool in_groups(const LinearCall& call) {
  return is_float8_in_groups(call) && fits(call);
}

template <bool (*fits)(const LinearCall&)>
bool unpacked_or_in_groups(const LinearCall& call) {
  return unpacked<fits>(call) || in_groups<fits>(call);
}
#endif

bool in_panels(const LinearCall& call) {
  return call.weight.layout == WeightLayout::kPanels;
}

// Of any number of rows: in bfloat16 tiles add up in an order of their own.
bool fits_tiles(const LinearCall& call) {
  const DType dtype = call.weight.dtype();
  return in_panels(call) && call.x.dtype() == dtype &&
         (dtype == DType::kBFloat16 || dtype == DType::kInt8);
}

constexpr LinearVariant kVariants[] = {
#ifdef ATOM_CUDA
    {"stream",
     CpuIsa::kScalar,
     unpacked<fits_linear_stream>,
     linear_stream,
     DeviceType::kCuda,
     kMixesRows},
    {"narrow",
     CpuIsa::kScalar,
     unpacked<fits_linear_narrow>,
     linear_narrow,
     DeviceType::kCuda,
     kMixesRows},
    {"split-k",
     CpuIsa::kScalar,
     in_groups<fits_linear_split_k>,
     linear_split_k,
     DeviceType::kCuda,
     kMixesRows},
    {"skinny",
     CpuIsa::kScalar,
     unpacked_or_in_groups<fits_linear_skinny>,
     linear_skinny,
     DeviceType::kCuda,
     kMixesRows},
    {"blocks-divided",
     CpuIsa::kScalar,
     in_groups<fits_linear_blocks_divided>,
     linear_blocks_divided,
     DeviceType::kCuda,
     kMixesRows},
    {"cublaslt-groups",
     CpuIsa::kScalar,
     in_groups<fits_library_blocks>,
     linear_cublaslt,
     DeviceType::kCuda,
     kMixesRows},
    {"blocks", CpuIsa::kScalar, in_groups<fits_linear_blocks>, linear_blocks, DeviceType::kCuda},
    {"cublaslt",
     CpuIsa::kScalar,
     unpacked<fits_cublaslt>,
     linear_cublaslt,
     DeviceType::kCuda,
     kMixesRows},
    {"wgmma",
     CpuIsa::kScalar,
     unpacked<fits_linear_wgmma>,
     linear_wgmma,
     DeviceType::kCuda,
     kMixesRows},
    {"expanded",
     CpuIsa::kScalar,
     unpacked<fits_linear_expanded>,
     linear_expanded,
     DeviceType::kCuda,
     kMixesRows},
    {"ordered", CpuIsa::kScalar, unpacked<fits_linear_ordered>, linear_ordered, DeviceType::kCuda},
    {"fixed", CpuIsa::kScalar, unpacked<fits_linear_fixed>, linear_fixed, DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, is_unpacked, launch_cuda, DeviceType::kCuda},
    {"quantized", CpuIsa::kScalar, has_codes, launch_quantized, DeviceType::kCuda},
#endif
    {"amx", CpuIsa::kAmx, fits_tiles, linear_amx},
    {"avx512", CpuIsa::kAvx512, in_panels, linear_avx512},
    {"avx2", CpuIsa::kAvx2, in_panels, linear_avx2},
    {"reference", CpuIsa::kScalar, nullptr, linear_reference},
};

// One scale for all, or one each.
void check_scales(TensorCheck& check, const char* name, const Tensor& scales, const char* size) {
  check.contiguous(name, scales, {scales.num_elements() == 1 ? "1" : size}, DType::kFloat32);
}

// Whether a quantized weight meets such activations.
bool takes(const LinearWeight& weight, DType x) {
  switch (x) {
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
      return true;
    case DType::kFloat8E4M3:
      return weight.dtype() != DType::kInt8;
    default:
      return x == weight.dtype();
  }
}

void check_x_scales(TensorCheck& check, const LinearCall& call) {
  const Tensor& scales = call.x_scales;
  if (scales.rank() == 1) return check_scales(check, "x_scales", scales, "T");
  const LinearWeight& weight = call.weight;
  CHECK(weight.has_groups());
  const bool has_four_bits = call.x.dtype() == DType::kUInt8;
  const int64_t groups = ceil_div(weight.in_features, weight.group_size);
  check.contiguous("x_scales",
                   scales,
                   {"T", std::to_string(groups).c_str()},
                   has_four_bits ? DType::kUInt8 : DType::kFloat32);
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
  const int64_t values_per_element = call.x.dtype() == DType::kUInt8 ? 2 : 1;
  check.tensor("y", call.y, {"T", "width"}, dtype_or_float32(call.y));
  CHECK(check.size("K") * values_per_element == weight.in_features);
  CHECK(check.size("width") * (call.is_gated ? 2 : 1) == weight.out_features);
  if (call.bias.defined()) {
    check.tensor("bias", call.bias, {features.c_str()}, dtype_or_float32(call.bias));
  }
  if (call.x_scales.defined()) check_x_scales(check, call);
  if (weight.scales.defined() && !weight.has_groups()) {
    check_scales(check, "weight.scales", weight.scales, features.c_str());
  }
}

bool is_unpacked(const LinearCall& call) {
  const DType dtype = call.weight.dtype();
  return dtype != DType::kInt8 && dtype != DType::kUInt8 && !call.weight.has_groups();
}

bool is_float8_in_groups(const LinearCall& call) {
  constexpr int64_t kGroupSize = 128;
  return call.weight.dtype() == DType::kFloat8E4M3 && call.weight.group_size == kGroupSize &&
         call.x.dtype() == DType::kFloat8E4M3 && call.x_scales.defined() &&
         call.x_scales.rank() == 2;
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
  if (variant.launch == linear_amx) {
    linear_many_amx(stream, calls, scratch);
  } else if (variant.launch == linear_avx512) {
    linear_many_avx512(stream, calls, scratch);
  } else if (variant.launch == linear_avx2) {
    linear_many_avx2(stream, calls, scratch);
  } else {
    for (const LinearCall& call : calls) variant.launch(stream, call, scratch);
  }
}

int64_t max_float8_rows([[maybe_unused]] Device device) {
#ifdef ATOM_CUDA
  if (device.type == DeviceType::kCuda) return max_fast_float8_rows();
#endif
  return 0;
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
  if (weight.is_quantized()) {
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
  // Sums of INT8 products fit 32 bits.
  constexpr int64_t kMaxInt8Features = (1 << 17) - 1;
  CHECK(weight.is_quantized());
  CHECK(takes(weight, x.dtype()));
  CHECK(x_scales.defined());
  if (x.dtype() == DType::kInt8) CHECK(weight.in_features <= kMaxInt8Features);
  dispatch_float(y.dtype(), [](auto) {});
  run(stream, {x, weight, bias, y, x_scales}, y.dtype(), scratch);
}

}  // namespace atom::ops
