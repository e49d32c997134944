#include "ops/head_linear/head_linear.h"

#include <vector>

#include "ops/head_linear/head_linear_sm90.h"
#include "ops/head_linear/head_linear_variants.h"
#include "ops/linear/linear_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// The first `size` elements of each head's part.
std::vector<Tensor> parts_of(const Tensor& rows, int64_t num_heads, int64_t size) {
  CHECK(rows.size(1) % num_heads == 0);
  const int64_t pitch = rows.size(1) / num_heads;
  CHECK(size <= pitch);
  std::vector<Tensor> parts;
  for (int64_t head = 0; head < num_heads; ++head) {
    parts.push_back(rows.narrow(1, head * pitch, size));
  }
  return parts;
}

struct HeadLinearCall {
  const Tensor& x;
  std::span<const LinearWeight> weights;
  const Tensor& y;
};

using Launch = void(const Stream&, const HeadLinearCall&, Workspace&);

std::vector<Tensor> inputs_of(const HeadLinearCall& call) {
  return parts_of(
      call.x, static_cast<int64_t>(call.weights.size()), call.weights.front().in_features);
}

std::vector<Tensor> outputs_of(const HeadLinearCall& call) {
  return parts_of(
      call.y, static_cast<int64_t>(call.weights.size()), call.weights.front().out_features);
}

void by_linear_many(const Stream& stream, const HeadLinearCall& call, Workspace& scratch) {
  const std::vector<Tensor> inputs = inputs_of(call), outputs = outputs_of(call);
  const Tensor no_bias;
  std::vector<LinearCall> calls;
  for (size_t head = 0; head < call.weights.size(); ++head) {
    calls.push_back({inputs[head], call.weights[head], no_bias, outputs[head]});
    check_linear_call("head_linear", calls.back(), call.x.dtype());
  }
  linear_many(stream, calls, scratch);
}

#ifdef ATOM_CUDA
void by_linear(const Stream& stream, const HeadLinearCall& call, Workspace& scratch) {
  const std::vector<Tensor> inputs = inputs_of(call), outputs = outputs_of(call);
  for (size_t head = 0; head < call.weights.size(); ++head) {
    linear(stream, inputs[head], call.weights[head], Tensor(), outputs[head], scratch);
  }
}

HeadLinearArgs sm90_args(const HeadLinearCall& call) {
  const auto num_heads = static_cast<int64_t>(call.weights.size());
  HeadLinearArgs args = {};
  args.x = call.x.raw_data();
  args.y = call.y.raw_data();
  for (size_t head = 0; head < call.weights.size(); ++head) {
    args.weights[head] = call.weights[head].data.raw_data();
  }
  const LinearWeight& first = call.weights.front();
  args.is_float8 = first.is_quantized();
  if (args.is_float8) {
    args.scales = first.scales.data<float>();
    args.scale_stride = first.scales.num_elements();
    args.scale_rows = static_cast<int>(first.scale_rows);
  }
  args.x_stride = call.x.stride(0);
  args.y_stride = call.y.stride(0);
  args.x_pitch = call.x.size(1) / num_heads;
  args.y_pitch = call.y.size(1) / num_heads;
  args.num_tokens = call.x.size(0);
  args.num_heads = static_cast<int>(num_heads);
  args.in_features = static_cast<int>(first.in_features);
  args.out_features = static_cast<int>(first.out_features);
  args.element = element_of(call.x.dtype());
  return args;
}

bool fits_sm90(const HeadLinearCall& call) {
  const LinearWeight& first = call.weights.front();
  return call.weights.size() <= size_t{kHeadLinearMaxHeads} && !first.is_quantized() &&
         first.layout == WeightLayout::kRowMajor && first.dtype() == call.x.dtype() &&
         supports_head_linear_sm90(sm90_args(call));
}

// Scales that follow one another from head to head. While a step is planned there are none.
bool have_adjacent_scales(std::span<const LinearWeight> weights) {
  const float* first = weights.front().scales.data<float>();
  for (size_t head = 0; first != nullptr && head < weights.size(); ++head) {
    const auto offset = static_cast<int64_t>(head) * weights.front().scales.num_elements();
    if (weights[head].scales.data<float>() != first + offset) return false;
  }
  return true;
}

bool fits_sm90_float8(const HeadLinearCall& call) {
  constexpr int64_t kGroup = 128;
  const LinearWeight& first = call.weights.front();
  const bool is_known = first.is_quantized() && first.quant_dtype() == QuantDType::kFloat8E4M3 &&
                        first.group_size == kGroup && first.layout == WeightLayout::kRowMajor;
  return is_known && call.weights.size() <= size_t{kHeadLinearMaxHeads} &&
         have_adjacent_scales(call.weights) && supports_head_linear_float8_sm90(sm90_args(call));
}

void by_sm90_float8(const Stream& stream, const HeadLinearCall& call, Workspace&) {
  if (!stream.is_dry_run()) head_linear_float8_sm90(sm90_args(call), stream.queue().handle());
}

void by_sm90(const Stream& stream, const HeadLinearCall& call, Workspace&) {
  if (!stream.is_dry_run()) head_linear_sm90(sm90_args(call), stream.queue().handle());
}
#endif

constexpr Variant<HeadLinearCall, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"sm90", CpuIsa::kScalar, fits_sm90, by_sm90, DeviceType::kCuda},
    {"sm90-float8", CpuIsa::kScalar, fits_sm90_float8, by_sm90_float8, DeviceType::kCuda},
    {"linear", CpuIsa::kScalar, nullptr, by_linear, DeviceType::kCuda},
#endif
    {"many", CpuIsa::kScalar, nullptr, by_linear_many},
};

// Of all heads.
OperatorWork work_of(const HeadLinearCall& call) {
  const Tensor no_bias;
  const OperatorWork one = linear_work(
      {inputs_of(call).front(), call.weights.front(), no_bias, outputs_of(call).front()});
  const auto num_heads = static_cast<int64_t>(call.weights.size());
  return {.bytes = num_heads * one.bytes, .flops = num_heads * one.flops};
}

HeadLinearCall checked_call(const Tensor& x,
                            std::span<const LinearWeight> weights,
                            const Tensor& y) {
  TensorCheck("head_linear")
      .tensor("x", x, {"T", "x_width"}, x.dtype())
      .tensor("y", y, {"T", "y_width"}, x.dtype());
  CHECK(!weights.empty());
  const HeadLinearCall call = {x, weights, y};
  const std::vector<Tensor> inputs = inputs_of(call), outputs = outputs_of(call);
  for (const LinearWeight& weight : weights) {
    CHECK(weight.in_features == weights.front().in_features);
    CHECK(weight.out_features == weights.front().out_features);
  }
  return call;
}

}  // namespace

void head_linear(const Stream& stream,
                 const Tensor& x,
                 std::span<const LinearWeight> weights,
                 const Tensor& y,
                 Workspace& scratch) {
  const HeadLinearCall call = checked_call(x, weights, y);
  if (x.size(0) == 0) return;
  const auto& variant =
      pick_variant("head_linear", kVariants, stream, call, [&] { return work_of(call); });
  variant.launch(stream, call, scratch);
}

bool head_linear_by(std::string_view variant_name,
                    const Stream& stream,
                    const Tensor& x,
                    std::span<const LinearWeight> weights,
                    const Tensor& y,
                    Workspace& scratch) {
  const HeadLinearCall call = checked_call(x, weights, y);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, call);
  if (variant == nullptr) return false;
  if (x.size(0) > 0) variant->launch(stream, call, scratch);
  return true;
}

}  // namespace atom::ops
