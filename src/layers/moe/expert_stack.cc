#include "layers/moe/expert_stack.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "layers/moe/float_experts.h"
#include "layers/moe/quantized_experts.h"
#include "layers/quant/quantized_storage.h"

namespace atom {
namespace {

Shape transposed(Shape shape) {
  std::swap(shape[1], shape[2]);
  return shape;
}

Box transposed(const Box& box) {
  return {transposed(box.begin), transposed(box.size)};
}

// The same of one tensor [num_experts, out_features, in_features] of all experts.
ExpertStackLayout as_rows(ExpertStackLayout layout) {
  CHECK(layout.alternatives.back().front().id.empty());
  CHECK(layout.alternatives.back().size() == 1u);
  ParameterSlice slice = layout.alternatives.back().front();
  if (std::exchange(layout.is_transposed, false)) {
    slice.source_shape = transposed(slice.source_shape);
    for (BoxCopy& box : slice.boxes) box = {transposed(box.source), transposed(box.target)};
  }
  layout.alternatives = {{std::move(slice)}};
  return layout;
}

// The scheme of the checkpoint's matrices, as that of the first expert's.
Result<QuantScheme> choose_scheme(const BuildContext& build, const ExpertStackLayout& layout) {
  std::string first_name;
  QuantScheme scheme;
  for (const ParameterSlice& slice : layout.alternatives.front()) {
    const std::string& id = slice.id;
    if (!id.empty() && !id.starts_with("0.") && !id.starts_with("shared.")) continue;
    const std::string name = source_module(build.packed_modules_mapping, build.module_name, id);
    const QuantScheme other = build.config.quantization.scheme_of(name);
    if (first_name.empty()) {
      first_name = name;
      scheme = other;
    }
    if (other == scheme) continue;
    return unimplemented(
        "config.json: {} ({}) and {} ({}) are quantized differently; they are computed as one "
        "layer and have to agree",
        first_name,
        scheme.to_string(),
        name,
        other.to_string());
  }
  return scheme;
}

// Those of --moe-activations.
Status check_activations(const BuildContext& build, const QuantScheme& scheme) {
  const bool is_mxfp4 = scheme.weights == QuantType::kPer1x32 && !scheme.online &&
                        scheme.weight_dtype == QuantDType::kFloat4E2M1;
  if (!build.float8_expert_activations || (is_mxfp4 && scheme.activations == QuantType::kNo)) {
    return {};
  }
  return unimplemented(
      "--moe-activations fp8 is for experts in MXFP4 whose checkpoint leaves activations as they "
      "are; {} has {}",
      build.module_name,
      scheme.to_string());
}

std::unique_ptr<ExpertMatrices> make_matrices(BuildContext& build,
                                              const ExpertStackLayout& layout) {
  const Result<QuantScheme> scheme = choose_scheme(build, layout);
  Status status = scheme.status();
  if (status.ok()) status = check_activations(build, *scheme);
  if (status.ok() && scheme->online) {
    status = check_online_experts(*scheme, layout, build.module_name);
    if (status.ok()) return std::make_unique<FloatExperts>(build, *scheme, layout);
  } else if (status.ok() && scheme->is_quantized()) {
    // Codes are stored by rows of outputs, whatever floats are.
    const bool is_mxfp4 = build.config.quantization.method == "mxfp4";
    const ExpertStackLayout rows = is_mxfp4 ? as_rows(layout) : layout;
    status = check_quantized_experts(*scheme, rows, build.module_name);
    if (status.ok()) return std::make_unique<QuantizedExperts>(build, *scheme, rows, is_mxfp4);
  }
  if (!status.ok()) build.fail(status);
  return std::make_unique<FloatExperts>(build, QuantScheme(), layout);
}

}  // namespace

ops::CodeFormat expert_input(const BuildContext& build, const QuantScheme& scheme) {
  if (!build.emulate_quantized_activations) return {};
  if (build.float8_expert_activations) return {QuantType::kPer1x128, DType::kFloat8E4M3};
  if (!build.device.is_cpu() && scheme.activation_dtype != QuantDType::kFloat8E4M3) return {};
  return {scheme.activations, code_dtype(scheme.activation_dtype)};
}

ExpertStack::ExpertStack(BuildContext& build, const ExpertStackLayout& layout)
    : matrices_(make_matrices(build, layout)) {
  register_module("", matrices_.get());
  if (layout.bias.empty()) return;
  bias_ = std::make_unique<Parameter>(
      build.dtype, Shape{layout.shape[0], layout.shape[1]}, layout.bias);
  register_parameter("bias", bias_.get());
}

int64_t ExpertStack::resident_bytes() const {
  return matrices_->resident_bytes() + (bias_ == nullptr ? 0 : bias_->num_bytes());
}

}  // namespace atom
