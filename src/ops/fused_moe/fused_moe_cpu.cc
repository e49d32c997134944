#include <algorithm>

#include "ops/fused_moe/fused_moe_variants.h"
#include "ops/linear/linear_variants.h"
#include "ops/quantize/quantize.h"
#include "tensor/dispatch.h"
#include "tensor/element_of.h"

namespace atom::ops {
namespace {

// A row of codes.
QuantizedRows row_of(const QuantizedRows& codes, int64_t row) {
  if (!codes.defined()) return {};
  QuantizedRows one = codes;
  one.values = codes.values.narrow(0, row, 1);
  if (!codes.is_static) one.scales = codes.scales.narrow(0, row, 1);
  return one;
}

// `given`: x in codes, where it is.
void multiply(const Stream& stream,
              const Tensor& x,
              const QuantizedRows& given,
              const CodeFormat& input,
              const LinearWeight& weight,
              const Tensor& bias,
              const Tensor& y,
              Workspace& scratch) {
  if (!input.is_quantized()) return linear_reference(stream, {x, weight, bias, y}, scratch);
  const Workspace::Scope scope(scratch);
  const QuantizedRows codes =
      given.defined() ? given : quantized_rows(input, 1, weight.in_features, scratch);
  const int64_t times = groups_of_a_scale(input, weight);
  const Tensor scales =
      times > 1 ? scratch.tensor({1, weight.in_features / weight.group_size}, DType::kFloat32)
                : codes.scales;
  if (stream.is_dry_run()) return;
  if (!given.defined()) quantize(stream, x, codes);
  if (times > 1) repeat_scales(codes.scales, times, scales);
  linear_reference(stream, {codes.values, weight, bias, y, scales}, scratch);
}

}  // namespace

int64_t groups_of_a_scale(const CodeFormat& input, const LinearWeight& weight) {
  const int64_t group_size = QuantFormat{.granularity = input.granularity}.group_size();
  const bool is_wider = weight.has_groups() && group_size % weight.group_size == 0;
  return is_wider ? std::max<int64_t>(1, group_size / weight.group_size) : 1;
}

void repeat_scales(const Tensor& scales, int64_t times, const Tensor& repeated) {
  const int64_t groups = repeated.size(1);
  for (int64_t row = 0; row < repeated.size(0); ++row) {
    const float* const from = scales.data<float>() + row * scales.stride(0);
    float* const to = repeated.data<float>() + row * repeated.stride(0);
    for (int64_t g = 0; g < groups; ++g) to[g] = from[g / times];
  }
}

void fused_moe_reference(const Stream& stream, const FusedMoeCall& call, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const ExpertWeights& experts = call.experts;
  const int64_t hidden_size = call.hidden_size(), size = call.intermediate_size();
  const Tensor sums = scratch.tensor({1, 2 * size}, DType::kFloat32);
  const Tensor activated = scratch.tensor({1, size}, call.x.dtype());
  const Tensor result = scratch.tensor({1, hidden_size}, DType::kFloat32);
  const Tensor total = scratch.tensor({1, hidden_size}, DType::kFloat32);
  if (stream.is_dry_run()) {
    multiply(stream, call.x, {}, experts.gate_up_input, experts.gate_up[0], {}, sums, scratch);
    multiply(stream, activated, {}, experts.down_input, experts.down[0], {}, result, scratch);
    return;
  }
  for (int64_t t = 0; t < call.num_tokens(); ++t) {
    std::fill_n(total.data<float>(), hidden_size, 0.0f);
    for (int64_t j = 0; j < call.top_k(); ++j) {
      const int64_t choice = t * call.top_k() + j;
      const int32_t e = place_of(experts, call.ids.data<int32_t>()[choice]);
      if (e < 0) continue;
      const Tensor x = call.x.narrow(0, t, 1);
      const Tensor gate_up_bias = expert_bias(experts.gate_up_bias, e);
      const Tensor down_bias = expert_bias(experts.down_bias, e);
      multiply(stream,
               x,
               row_of(call.x_codes, t),
               experts.gate_up_input,
               experts.gate_up[e],
               gate_up_bias,
               sums,
               scratch);
      activate_reference({.sums = sums.data<float>(),
                          .out = activated.raw_data(),
                          .size = size,
                          .element = element_of(activated.dtype()),
                          .activation = call.activation},
                         0,
                         1);
      multiply(
          stream, activated, {}, experts.down_input, experts.down[e], down_bias, result, scratch);
      const float weight = call.weights.data<float>()[choice];
      for (int64_t i = 0; i < hidden_size; ++i) {
        total.data<float>()[i] += weight * result.data<float>()[i];
      }
    }
    copy_convert(total, call.y.narrow(0, t, 1));
  }
}

}  // namespace atom::ops
