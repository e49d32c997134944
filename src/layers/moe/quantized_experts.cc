#include "layers/moe/quantized_experts.h"

#include <algorithm>
#include <set>

#include "base/rounding.h"
#include "layers/moe/image_experts.h"
#include "layers/moe/resident_slices.h"
#include "layers/quant/pack_parameter.h"
#include "layers/quant/quantized_storage.h"
#include "ops/fused_moe/expert_images.h"
#include "ops/quantize/quantize.h"

namespace atom {
namespace {

// Rows and columns of a matrix that are one in what is stored of it.
struct Unit {
  int64_t rows;
  int64_t columns;
};

Shape in_units(Shape shape, const Unit& unit) {
  const int rank = shape.rank();
  shape[rank - 2] = ceil_div(shape[rank - 2], unit.rows);
  shape[rank - 1] = ceil_div(shape[rank - 1], unit.columns);
  return shape;
}

// Parts begin with a unit of their own.
Box in_units(const Box& box, const Unit& unit) {
  return {in_units(box.begin, unit), in_units(box.size, unit)};
}

std::vector<ParameterSlice> in_units(std::vector<ParameterSlice> slices, const Unit& unit) {
  for (ParameterSlice& slice : slices) {
    slice.source_shape = in_units(slice.source_shape, unit);
    for (BoxCopy& box : slice.boxes) {
      box = {in_units(box.source, unit), in_units(box.target, unit)};
    }
  }
  return slices;
}

// The sizes of the runs of rows that come from tensors of their own.
std::vector<int64_t> part_rows_of(const ExpertStackLayout& layout) {
  std::set<int64_t> begins;
  for (const ParameterSlice& slice : layout.alternatives.front()) {
    for (const BoxCopy& box : slice.boxes) begins.insert(box.target.begin[1]);
  }
  begins.insert(layout.shape[1]);
  std::vector<int64_t> rows;
  for (auto begin = begins.begin(); std::next(begin) != begins.end(); ++begin) {
    rows.push_back(*std::next(begin) - *begin);
  }
  return rows;
}

Unit scale_unit(const QuantScheme& scheme, const ExpertStackLayout& layout) {
  const int64_t in_features = layout.shape[2];
  switch (scheme.weights) {
    case QuantType::kPerTensor:
      return {part_rows_of(layout).front(), in_features};
    case QuantType::kPer128x128:
      return {kQuantBlockRows, kQuantBlockRows};
    case QuantType::kPerToken:
      return {1, in_features};
    default:
      return {1, ops::QuantFormat{scheme.weight_dtype, scheme.weights, 1}.group_size()};
  }
}

Unit code_unit(const QuantScheme& scheme) {
  return {1, find_storage(scheme)->values};
}

// [E, N, ...] of the slices' targets.
Shape stack_shape(const ExpertStackLayout& layout, const Unit& unit) {
  Shape shape = in_units(layout.shape, unit);
  shape[1] = 0;
  for (const int64_t rows : part_rows_of(layout)) shape[1] += ceil_div(rows, unit.rows);
  return shape;
}

constexpr int64_t kGroupBytes = 16;

// [E, N, K / 2] bytes as [E, N, K / 32, 16]. Boxes are of whole groups.
Shape split_size(const Shape& size) {
  return {size[0], size[1], size[2] / kGroupBytes, kGroupBytes};
}

Box split_box(const Box& box) {
  const Shape& begin = box.begin;
  return {{begin[0], begin[1], begin[2] / kGroupBytes, 0}, split_size(box.size)};
}

std::vector<ParameterSlice> split_into_groups(std::vector<ParameterSlice> slices) {
  for (ParameterSlice& slice : slices) {
    slice.source_shape = split_size(slice.source_shape);
    for (BoxCopy& box : slice.boxes) box = {split_box(box.source), split_box(box.target)};
  }
  return slices;
}

// The rows of one expert, [rows, columns], of a stack with or without a dimension for groups.
Tensor rows_of_expert(const Tensor& stack, int64_t expert) {
  const int64_t num_columns = stack.num_elements() / (stack.size(0) * stack.size(1));
  return stack.narrow(0, expert, 1).view({stack.size(1), num_columns});
}

Parameter make_stack(DType dtype,
                     const ExpertStackLayout& layout,
                     const Unit& unit,
                     bool in_rows_of_groups) {
  std::vector<ParameterSlice> slices = in_units(layout.alternatives.front(), unit);
  Shape shape = stack_shape(layout, unit);
  if (in_rows_of_groups) {
    slices = split_into_groups(std::move(slices));
    shape = split_size(shape);
  }
  return Parameter(dtype, shape, std::move(slices));
}

bool is_multiple(const Box& box, const Unit& unit) {
  const int rank = box.begin.rank();
  return box.begin[rank - 2] % unit.rows == 0 && box.begin[rank - 1] % unit.columns == 0;
}

}  // namespace

Status check_quantized_experts(const QuantScheme& scheme,
                               const ExpertStackLayout& layout,
                               const std::string& name) {
  const QuantizedStorage* storage = find_storage(scheme);
  if (storage == nullptr || scheme.online) {
    return unimplemented("{}: experts with {} are not supported", name, scheme.to_string());
  }
  if (layout.is_transposed) {
    return unimplemented("{}: quantized experts stored as [inputs, outputs] are not supported",
                         name);
  }
  const Unit unit = scale_unit(scheme, layout);
  if (storage->values > 1 && layout.shape[2] % unit.columns != 0) {
    return unimplemented("{}: {} inputs do not divide into groups of {} that share a scale",
                         name,
                         layout.shape[2],
                         unit.columns);
  }
  for (const ParameterSlice& slice : layout.alternatives.front()) {
    for (const BoxCopy& box : slice.boxes) {
      if (is_multiple(box.source, unit)) continue;
      return unimplemented(
          "{}: the rows of '{}' do not divide into blocks that share a scale", name, slice.id);
    }
  }
  return {};
}

QuantizedExperts::QuantizedExperts(const BuildContext& build,
                                   const QuantScheme& scheme,
                                   const ExpertStackLayout& layout,
                                   bool in_rows_of_groups)
    : name_(build.module_name),
      device_(build.device),
      scheme_(scheme),
      part_rows_(part_rows_of(layout)),
      format_(packed_format(scheme, part_rows_)),
      input_(expert_input(build, scheme)),
      weight_(
          make_stack(find_storage(scheme)->stored, layout, code_unit(scheme), in_rows_of_groups)),
      weight_scale_(make_stack(format_.scale_dtype(), layout, scale_unit(scheme, layout), false)) {
  register_parameter("weight", &weight_);
  register_parameter("weight_scale", &weight_scale_);
  weight_scale_.keep_on_host();
  if (scheme.static_activations) {
    const Unit unit = {part_rows_.front(), layout.shape[2]};
    // A parameter does not move.
    input_scale_.reset(new Parameter(make_stack(DType::kFloat32, layout, unit, false)));
    input_scale_->keep_on_host();
    register_parameter("input_scale", input_scale_.get());
    if (input_.is_quantized()) input_.static_scale = Tensor::meta({1}, DType::kFloat32);
  }
  ops::QuantFormat format = format_;
  if (format.granularity == QuantType::kPerTensor) format.granularity = QuantType::kPerToken;
  const ops::WeightLayout packed = expert_weight_layout(layout, format, build.device);
  for (int64_t expert = 0; expert < layout.shape[0]; ++expert) {
    weights_.push_back(
        ops::quantized_weight_meta(layout.shape[1], layout.shape[2], format, packed));
  }
}

int64_t QuantizedExperts::resident_bytes() const {
  int64_t bytes = 0;
  for (const ops::LinearWeight& weight : weights_) {
    bytes += weight.data.num_bytes() + weight.scales.num_bytes();
  }
  if (input_.static_scale.defined()) bytes += input_.static_scale.num_bytes();
  return bytes;
}

Status QuantizedExperts::check_loaded(const Stream& stream) const {
  if (!are_scales(weight_scale_.data(), format_.group_size() > 0)) {
    return invalid_argument("{}.weight_scale: a scale is no positive number", name_);
  }
  if (input_scale_ != nullptr && !are_scales(input_scale_->data(), false)) {
    return invalid_argument("{}.input_scale: a scale is no positive number", name_);
  }
  const Tensor& codes = weight_.data();
  const Shape rows = {codes.size(0) * codes.size(1), codes.size(2)};
  if (codes.dtype() == DType::kFloat8E4M3 && ops::holds_nan(stream, codes.view(rows))) {
    return invalid_argument("{}.weight: an element is NaN", name_);
  }
  return {};
}

// As ops::pack_scales() takes them.
Tensor QuantizedExperts::scales_of(int64_t expert) const {
  const Tensor scales = rows_of_expert(weight_scale_.data(), expert);
  if (scheme_.weights == QuantType::kPer128x128) {
    return scales_of_blocks(scales, part_rows_, format_.scale_rows);
  }
  if (scheme_.weights == QuantType::kPerToken) return scales.view({scales.size(0)});
  if (scheme_.weights != QuantType::kPerTensor) return scales;
  int64_t num_rows = 0;
  for (const int64_t rows : part_rows_) num_rows += rows;
  const Tensor of_rows = Tensor::empty({num_rows}, DType::kFloat32);
  float* out = of_rows.data<float>();
  const float* in = scales.data<float>();
  for (const int64_t rows : part_rows_) out = std::fill_n(out, rows, *in++);
  return of_rows;
}

void QuantizedExperts::pack_expert(const Stream& stream, int64_t expert) {
  ops::LinearWeight& weight = weights_[expert];
  const Tensor codes = as_bytes(rows_of_expert(weight_.data(), expert));
  weight.data = Tensor::empty(weight.data.shape(), weight.data.dtype());
  weight.scales = Tensor::zeros(weight.scales.shape(), weight.scales.dtype());
  consume_in_pieces(codes, [&](const Tensor& piece, int64_t first) {
    ops::pack_rows(stream, piece, first, weight);
  });
  ops::pack_scales(scales_of(expert), 0, weight);
}

// The codes are where they were loaded to, and become images there.
void QuantizedExperts::place_on_device(const Stream& stream) {
  const auto count = static_cast<int64_t>(weights_.size());
  std::vector<Tensor> scales;
  for (int64_t expert = 0; expert < count; ++expert) scales.push_back(scales_of(expert));
  scales = resident_slices(stream, scales);
  if (weights_.front().layout == ops::WeightLayout::kImages) {
    ops::turn_into_images(stream, weight_.data(), weights_.front().in_features);
    stream.queue().synchronize();
  }
  for (int64_t expert = 0; expert < count; ++expert) {
    ops::LinearWeight& weight = weights_[expert];
    const Tensor rows = as_bytes(rows_of_expert(weight_.data(), expert));
    weight.data = rows.view(weight.data.shape());
    weight.scales = scales[expert];
  }
}

Status QuantizedExperts::finish_load(const Stream& stream) {
  RETURN_IF_ERROR(check_loaded(stream));
  if (input_.static_scale.defined()) {
    const Tensor& scales = input_scale_->data();
    const float* begin = scales.data<float>();
    input_.static_scale = Tensor::empty({1}, DType::kFloat32);
    *input_.static_scale.data<float>() = *std::max_element(begin, begin + scales.num_elements());
  }
  if (device_.is_cpu()) {
    for (size_t expert = 0; expert < weights_.size(); ++expert) {
      pack_expert(stream, static_cast<int64_t>(expert));
    }
  } else {
    place_on_device(stream);
  }
  weight_.release();
  return {};
}

}  // namespace atom
