#include "layers/quant/fp8.h"

#include <algorithm>
#include <cmath>

#include "layers/quant/make_weight.h"
#include "layers/quant/pack_parameter.h"
#include "ops/linear_silu_and_mul/linear_silu_and_mul.h"
#include "ops/quantize/quantize.h"
#include "tensor/device_arena.h"

namespace atom {
namespace {

// One scale for each row, placed like the rows of the weight.
std::unique_ptr<Parameter> make_row_scales(const LinearPartition& partition) {
  if (partition.is_packed()) {
    return std::make_unique<Parameter>(DType::kFloat32, partition.out_slices, Shape{1});
  }
  const RowSlice& rows = partition.out_slices.front();
  return std::make_unique<Parameter>(DType::kFloat32, Shape{rows.rows, 1}, 0, rows.part);
}

// One scale for each part.
std::unique_ptr<Parameter> make_part_scales(const LinearPartition& partition) {
  if (!partition.is_packed()) return std::make_unique<Parameter>(DType::kFloat32, Shape{1});
  std::vector<RowSlice> slices;
  for (const RowSlice& slice : partition.out_slices) slices.push_back({slice.id, 1, {}});
  return std::make_unique<Parameter>(DType::kFloat32, std::move(slices), Shape{});
}

bool all_positive(const Tensor& scales) {
  const float* data = scales.data<float>();
  return std::all_of(data, data + scales.num_elements(), [](float scale) {
    return std::isfinite(scale) && scale > 0;
  });
}

int64_t local_rows(const RowSlice& slice) {
  return slice.rows / slice.part.world;
}

}  // namespace

Fp8LinearMethod::Fp8LinearMethod(const BuildContext& build,
                                 const QuantScheme& scheme,
                                 const LinearPartition& partition)
    : name_(build.module_name),
      device_(build.device),
      dtype_(build.dtype),
      scheme_(scheme),
      partition_(partition),
      quantises_activations_(scheme.activations != QuantType::kNo &&
                             build.emulate_quantized_activations),
      encodes_(scheme.online && !build.device.is_cpu()),
      takes_codes_(quantises_activations_),
      weight_(
          make_weight(scheme.online && !encodes_ ? build.dtype : DType::kFloat8E4M3, partition)) {
  CHECK((scheme.weights == QuantType::kPerTensor || scheme.weights == QuantType::kPerToken));
  register_parameter("weight", &weight_);
  if (!scheme.online || encodes_) {
    weight_scale_ = scheme.weights == QuantType::kPerToken ? make_row_scales(partition)
                                                           : make_part_scales(partition);
    register_parameter("weight_scale", weight_scale_.get());
  }
  if (encodes_) {
    weight_.set_encoder(this);
    weight_scale_->set_computed();
  } else if (weight_scale_ != nullptr) {
    weight_scale_->keep_on_host();
  }
  if (scheme.static_activations) {
    input_scale_ = make_part_scales(partition);
    input_scale_->keep_on_host();
    register_parameter("input_scale", input_scale_.get());
  }
  make_parts();
}

// The library that multiplies on a device takes a scale for each row with one for each token.
bool Fp8LinearMethod::has_one_scale() const {
  if (scheme_.weights != QuantType::kPerTensor || partition_.is_packed()) return false;
  return device_.is_cpu() || !quantises_activations_ || scheme_.static_activations;
}

void Fp8LinearMethod::encode(const Stream& stream, const Tensor& rows, int64_t first_row) {
  const int64_t count = rows.size(0);
  ops::quantize(stream,
                rows,
                {weight_.data().narrow(0, first_row, count),
                 weight_scale_->data().narrow(0, first_row, count).view({count})});
}

// The parts as memory plans see them, without memory.
void Fp8LinearMethod::make_parts() {
  const bool apart = quantises_activations_ && scheme_.static_activations;
  int64_t row = 0;
  for (const RowSlice& slice : partition_.out_slices) {
    const int64_t rows = local_rows(slice);
    if (apart || parts_.empty()) {
      parts_.push_back({row, rows, {}, apart ? Tensor::meta({1}, DType::kFloat32) : Tensor()});
    } else {
      parts_.back().num_rows += rows;
    }
    row += rows;
  }
  for (Part& part : parts_) {
    part.weight = ops::linear_weight_meta(part.num_rows,
                                          partition_.local_in_features(),
                                          DType::kFloat8E4M3,
                                          ops::preferred_weight_layout(device_));
    part.weight.scales = Tensor::meta({has_one_scale() ? 1 : part.num_rows}, DType::kFloat32);
  }
}

int64_t Fp8LinearMethod::resident_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) {
    bytes += part.weight.data.num_bytes() + part.weight.scales.num_bytes();
    if (part.input_scale.defined()) bytes += part.input_scale.num_bytes();
  }
  return bytes;
}

Status Fp8LinearMethod::check_loaded(const Stream& stream) const {
  const auto wrong = [&](const char* parameter, const char* what) {
    return invalid_argument("{}.{}: {}", name_, parameter, what);
  };
  constexpr const char* kBadScale = "a scale is no positive number";
  if (!scheme_.online && !all_positive(weight_scale_->data())) {
    return wrong("weight_scale", kBadScale);
  }
  if (input_scale_ != nullptr && !all_positive(input_scale_->data())) {
    return wrong("input_scale", kBadScale);
  }
  if (!scheme_.online && ops::holds_nan(stream, weight_.data())) {
    return wrong("weight", "an element is NaN");
  }
  return {};
}

// [local_out_features] or, of one scale for all, [1], where the stream works.
Tensor Fp8LinearMethod::row_scales(const Stream& stream) const {
  const Tensor& loaded = weight_scale_->data();
  const int64_t num_rows = partition_.local_out_features();
  if (encodes_) return loaded.view({num_rows});
  const Tensor scales = Tensor::empty({has_one_scale() ? 1 : num_rows}, DType::kFloat32);
  float* out = scales.data<float>();
  const float* in = loaded.data<float>();
  if (loaded.num_elements() == scales.num_elements()) {
    std::copy_n(in, loaded.num_elements(), out);
  } else {
    for (const RowSlice& slice : partition_.out_slices) {
      out = std::fill_n(out, local_rows(slice), *in++);
    }
  }
  return resident_copy(stream, scales);
}

// Neighbours whose activations have the same scale become one part, where that takes as much
// memory as the plan said.
void Fp8LinearMethod::merge_parts() {
  const float* scales = input_scale_->data().data<float>();
  std::vector<Part> merged;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (i > 0 && part.first_row % kPackedRowMultiple == 0 && scales[i] == scales[i - 1]) {
      merged.back().num_rows += part.num_rows;
    } else {
      merged.push_back(part);
    }
  }
  parts_ = std::move(merged);
}

void Fp8LinearMethod::place_input_scales(const Stream& stream) {
  const Tensor scales = resident_copy(stream, input_scale_->data());
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].input_scale = scales.narrow(0, static_cast<int64_t>(i), 1);
  }
  merge_parts();
}

Status Fp8LinearMethod::finish_load(const Stream& stream) {
  RETURN_IF_ERROR(check_loaded(stream));
  if (parts_.front().input_scale.defined()) place_input_scales(stream);
  const bool quantises_here = scheme_.online && !encodes_;
  const Tensor scales = quantises_here ? Tensor() : row_scales(stream);
  for (Part& part : parts_) {
    const Tensor rows = weight_.data().narrow(0, part.first_row, part.num_rows);
    if (quantises_here) {
      part.weight = quantise_rows(stream, rows);
    } else {
      part.weight = pack_consumed_rows(stream, rows);
      part.weight.scales =
          scales.num_elements() == 1 ? scales : scales.narrow(0, part.first_row, part.num_rows);
    }
  }
  weight_.release();
  if (parts_.size() > 1) takes_codes_ = false;
  return {};
}

ActivationFormat Fp8LinearMethod::wanted() const {
  if (!takes_codes_) return {};
  if (!scheme_.static_activations) return {.rows = false, .codes = QuantType::kPerToken};
  return {
      .rows = false, .codes = QuantType::kPerTensor, .static_scale = parts_.front().input_scale};
}

void Fp8LinearMethod::apply_silu_and_mul(const Stream& stream,
                                         const Activation& x,
                                         const Tensor& bias,
                                         const Activation& y,
                                         DType dtype,
                                         Workspace& workspace) const {
  if (!wanted().takes(x.codes)) {
    return LinearMethod::apply_silu_and_mul(stream, x, bias, y, dtype, workspace);
  }
  const ops::LinearWeight& weight = parts_.front().weight;
  const auto& [values, scales, granularity, is_static] = x.codes;
  if (y.has_codes()) {
    ops::linear_silu_and_mul_quantized(
        stream, values, scales, weight, bias, dtype, y.codes, workspace);
  } else {
    ops::linear_silu_and_mul(stream, values, scales, weight, bias, y.rows, workspace);
  }
}

void Fp8LinearMethod::apply(const Stream& stream,
                            const Activation& x,
                            const Tensor& bias,
                            const Tensor& y,
                            Workspace& workspace) const {
  const ops::LinearWeight& weight = parts_.front().weight;
  if (wanted().takes(x.codes)) {
    ops::linear(stream, x.codes.values, x.codes.scales, weight, bias, y, workspace);
  } else if (quantises_activations_) {
    quantize_and_multiply(stream, x.rows, bias, y, workspace);
  } else {
    ops::linear(stream, x.rows, weight, bias, y, workspace);
  }
}

void Fp8LinearMethod::quantize_and_multiply(const Stream& stream,
                                            const Tensor& x,
                                            const Tensor& bias,
                                            const Tensor& y,
                                            Workspace& workspace) const {
  const Workspace::Scope scope(workspace);
  const Tensor values = workspace.tensor(x.shape(), DType::kFloat8E4M3);
  if (!scheme_.static_activations) {
    const Tensor scales = workspace.tensor({x.size(0)}, DType::kFloat32);
    ops::quantize(stream, x, {values, scales});
    return ops::linear(stream, values, scales, parts_.front().weight, bias, y, workspace);
  }
  for (const Part& part : parts_) {
    ops::quantize(stream, x, {values, part.input_scale, QuantType::kPerTensor, true});
    ops::linear(stream,
                values,
                part.input_scale,
                part.weight,
                bias.defined() ? bias.narrow(0, part.first_row, part.num_rows) : bias,
                y.narrow(1, part.first_row, part.num_rows),
                workspace);
  }
}

}  // namespace atom
