#include "ops/fused_moe/fused_moe_gpu_call.h"

#include "base/check.h"

namespace atom::ops {
namespace {

Element gpu_element(DType dtype) {
  return static_cast<Element>(dtype);
}

bool is_gpu_layout(WeightLayout layout) {
  return layout == WeightLayout::kRowMajor || layout == WeightLayout::kImages;
}

// Whether expert e's part begins e strides after the first one's.
bool is_slice(const Tensor& part, const Tensor& first, size_t e, int64_t stride) {
  return part.raw_data() ==
         static_cast<const char*>(first.raw_data()) + static_cast<int64_t>(e) * stride;
}

// Images are of nothing but FP4.
ExpertFormat format_of(const LinearWeight& weight) {
  const bool is_image = weight.layout == WeightLayout::kImages;
  if (!weight.is_quantized()) {
    CHECK(!is_image);
    return ExpertFormat::kAsX;
  }
  CHECK((!is_image || weight.quant_dtype() == QuantDType::kFloat4E2M1));
  switch (weight.quant_dtype()) {
    case QuantDType::kFloat8E4M3:
      return ExpertFormat::kFloat8;
    case QuantDType::kInt8:
      return ExpertFormat::kInt8;
    case QuantDType::kFloat4E2M1:
      return is_image ? ExpertFormat::kFloat4Images : ExpertFormat::kFloat4;
    case QuantDType::kInt4:
      return ExpertFormat::kInt4;
  }
  return ExpertFormat::kAsX;
}

void add_scales(const LinearWeight& weight, ExpertMatrices* matrices) {
  const Tensor& scales = weight.scales;
  matrices->scale_rows = static_cast<int>(weight.out_features);
  matrices->scale_columns = static_cast<int>(weight.in_features);
  matrices->scales_across = 1;
  if (!scales.defined()) return;
  if (scales.dtype() == DType::kUInt8) {
    CHECK((weight.group_size == 32 && weight.scale_rows == 1));
    matrices->exponents = static_cast<const uint8_t*>(scales.raw_data());
    matrices->exponent_stride = scales.num_elements();
    return;
  }
  matrices->scales = scales.data<float>();
  matrices->scale_stride = scales.num_elements();
  if (weight.has_groups()) {
    matrices->scale_rows = static_cast<int>(weight.scale_rows);
    matrices->scale_columns = static_cast<int>(weight.group_size);
    matrices->scales_across = static_cast<int>(scales.size(1));
  } else if (scales.num_elements() > 1) {
    matrices->scale_rows = 1;
  }
}

// Ends the process unless the matrices are slices of one tensor, row-major or images.
ExpertMatrices matrices_of(std::span<const LinearWeight> weights, const Tensor& bias) {
  const LinearWeight& first = weights.front();
  CHECK(is_gpu_layout(first.layout));
  // While a step is planned weights have a shape alone.
  const bool has_data = first.data.raw_data() != nullptr;
  for (size_t e = 0; has_data && e < weights.size(); ++e) {
    CHECK(is_slice(weights[e].data, first.data, e, first.data.num_bytes()));
    if (!first.scales.defined()) continue;
    CHECK(is_slice(weights[e].scales, first.scales, e, first.scales.num_bytes()));
  }
  ExpertMatrices matrices{};
  matrices.data = first.data.raw_data();
  matrices.expert_stride = first.data.num_bytes();
  add_scales(first, &matrices);
  matrices.bias = bias.raw_data();
  matrices.bias_element = gpu_element(bias.defined() ? bias.dtype() : DType::kFloat32);
  return matrices;
}

}  // namespace

FusedMoeGpuCall gpu_call(const FusedMoeCall& call, int64_t first_token, int64_t num_tokens) {
  const ExpertWeights& experts = call.experts;
  const int64_t first_choice = first_token * call.top_k();
  return {.x = call.x.narrow(0, first_token, num_tokens).raw_data(),
          .ids = static_cast<const int32_t*>(call.ids.raw_data()) + first_choice,
          .weights = static_cast<const float*>(call.weights.raw_data()) + first_choice,
          .places = static_cast<const int32_t*>(experts.places.raw_data()),
          .y = call.y.narrow(0, first_token, num_tokens).raw_data(),
          .gate_up = matrices_of(experts.gate_up, experts.gate_up_bias),
          .down = matrices_of(experts.down, experts.down_bias),
          .activation = call.activation,
          .x_stride = call.x.stride(0),
          .y_stride = call.y.stride(0),
          .num_tokens = static_cast<int>(num_tokens),
          .top_k = static_cast<int>(call.top_k()),
          .num_ids = static_cast<int>(experts.places.defined() ? experts.places.size(0)
                                                               : call.num_experts()),
          .num_experts = static_cast<int>(call.num_experts()),
          .hidden_size = static_cast<int>(call.hidden_size()),
          .intermediate_size = static_cast<int>(call.intermediate_size()),
          .element = gpu_element(call.x.dtype()),
          .format = format_of(experts.down[0]),
          .y_element = gpu_element(call.y.dtype())};
}

bool has_token_codes(const FusedMoeCall& call) {
  return call.x_codes.defined() && call.x_codes.granularity == QuantType::kPer1x128 &&
         call.x_codes.values.dtype() == DType::kFloat8E4M3;
}

MoeTokenCodes token_codes(const FusedMoeCall& call, int64_t first_token, int64_t num_tokens) {
  if (!has_token_codes(call)) return {};
  const Tensor& values = call.x_codes.values;
  constexpr int kRowAlignment = 16;
  CHECK(reinterpret_cast<uintptr_t>(values.raw_data()) % kRowAlignment == 0u);
  CHECK(values.stride(0) % kRowAlignment == 0);
  return {static_cast<const uint8_t*>(values.narrow(0, first_token, num_tokens).raw_data()),
          call.x_codes.scales.narrow(0, first_token, num_tokens).data<float>(),
          values.stride(0)};
}

bool is_row_major(const FusedMoeCall& call) {
  return call.experts.down[0].layout == WeightLayout::kRowMajor;
}

bool has_gpu_layout(const FusedMoeCall& call) {
  return is_gpu_layout(call.experts.down[0].layout);
}

}  // namespace atom::ops
