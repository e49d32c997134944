#include "layers/quant/quantized_weight.h"

#include <algorithm>

#include "base/rounding.h"
#include "layers/quant/make_weight.h"
#include "layers/quant/pack_parameter.h"
#include "layers/quant/quantized_storage.h"
#include "ops/quantize/quantize.h"
#include "tensor/device_arena.h"

namespace atom {
namespace {

const QuantizedStorage& storage_of(const QuantScheme& scheme) {
  const QuantizedStorage* storage = find_storage(scheme);
  CHECK(storage != nullptr);
  return *storage;
}

int64_t group_size_of(QuantType granularity) {
  return ops::QuantFormat{QuantDType::kFloat8E4M3, granularity, 1}.group_size();
}

std::vector<int64_t> part_rows(const LinearPartition& partition) {
  std::vector<int64_t> rows;
  for (const RowSlice& slice : partition.out_slices) rows.push_back(slice.rows_of_rank());
  return rows;
}

// `values` of a row in each element.
LinearPartition stored_partition(LinearPartition partition, int64_t values) {
  partition.in_features /= values;
  return partition;
}

std::unique_ptr<Parameter> rows_parameter(DType dtype, const LinearPartition& partition) {
  const Shape row_shape = {partition.in_features};
  if (partition.is_packed()) {
    return std::make_unique<Parameter>(dtype, partition.out_slices, row_shape);
  }
  const RowSlice& rows = partition.out_slices.front();
  const Shape shape = {rows.rows, partition.in_features};
  if (partition.in_part.world > 1) {
    return std::make_unique<Parameter>(dtype, shape, 1, partition.in_part);
  }
  return std::make_unique<Parameter>(dtype, shape, 0, rows.part);
}

// One scale for each part.
std::unique_ptr<Parameter> part_scales(const LinearPartition& partition) {
  if (!partition.is_packed()) return std::make_unique<Parameter>(DType::kFloat32, Shape{1});
  std::vector<RowSlice> slices;
  for (const RowSlice& slice : partition.out_slices) slices.push_back({slice.id, 1, {}});
  return std::make_unique<Parameter>(DType::kFloat32, std::move(slices), Shape{});
}

std::unique_ptr<Parameter> make_scales(const QuantScheme& scheme,
                                       const ops::QuantFormat& format,
                                       LinearPartition partition) {
  if (scheme.weights == QuantType::kPerTensor) return part_scales(partition);
  const int64_t group_size = format.group_size();
  if (group_size == 0) {
    partition.in_features = 1;
    partition.in_part = {};
  } else {
    partition.in_features = ceil_div(partition.in_features, group_size);
  }
  if (scheme.weights == QuantType::kPer128x128) {
    for (RowSlice& slice : partition.out_slices) {
      slice.rows = ceil_div(slice.rows, kQuantBlockRows);
      for (RowRun& run : slice.runs)
        run = {run.begin / kQuantBlockRows, run.count / kQuantBlockRows};
    }
  }
  return rows_parameter(format.scale_dtype(), partition);
}

}  // namespace

Status check_quantized_weight(const QuantScheme& scheme,
                              const LinearPartition& partition,
                              const std::string& name) {
  const QuantizedStorage* storage = find_storage(scheme);
  if (storage == nullptr) {
    return unimplemented("{}: {} are not supported", name, scheme.to_string());
  }
  const int64_t group_size = group_size_of(scheme.weights);
  const bool may_be_ragged =
      storage->values == 1 && partition.in_part.world == 1 && scheme.weights != QuantType::kPer1x32;
  if (group_size > 0 && !may_be_ragged && partition.local_in_features() % group_size != 0) {
    return unimplemented("{}: {} inputs do not divide into groups of {} that share a scale",
                         name,
                         partition.local_in_features(),
                         group_size);
  }
  if (scheme.weights != QuantType::kPer128x128) return {};
  for (const RowSlice& slice : partition.out_slices) {
    const bool has_whole_blocks =
        slice.runs.empty()
            ? slice.part.world == 1 || slice.rows_of_rank() % kQuantBlockRows == 0
            : std::all_of(slice.runs.begin(), slice.runs.end(), [](const RowRun& run) {
                return run.begin % kQuantBlockRows == 0 && run.count % kQuantBlockRows == 0;
              });
    if (has_whole_blocks) continue;
    return unimplemented(
        "{}: {} rows on {} ranks do not divide into blocks of {} that share a scale",
        name,
        slice.rows,
        slice.part.world,
        kQuantBlockRows);
  }
  return {};
}

QuantizedWeight::QuantizedWeight(const BuildContext& build,
                                 const QuantScheme& scheme,
                                 const LinearPartition& partition)
    : name_(build.module_name),
      device_(build.device),
      dtype_(build.dtype),
      scheme_(scheme),
      partition_(partition),
      quantizes_activations_(scheme.activations != QuantType::kNo &&
                             build.emulate_quantized_activations),
      // Rows of codes of two values are shorter than those that come.
      encodes_(scheme.online && !build.device.is_cpu() && storage_of(scheme).values == 1),
      format_(packed_format(scheme, part_rows(partition))),
      weight_(quantizes_on_host()
                  ? make_weight(build.dtype, partition)
                  : make_weight(storage_of(scheme).stored,
                                stored_partition(partition, storage_of(scheme).values))) {
  register_parameters();
  make_parts();
}

void QuantizedWeight::register_parameters() {
  register_parameter("weight", &weight_);
  if (quantizes_on_host() || device_.is_cpu()) weight_.keep_on_host();
  if (!quantizes_on_host()) {
    weight_scale_ = make_scales(scheme_, format_, partition_);
    register_parameter("weight_scale", weight_scale_.get());
    if (encodes_) {
      weight_.set_encoder(this);
      weight_scale_->set_computed();
    } else {
      weight_scale_->keep_on_host();
    }
  }
  if (scheme_.static_activations) {
    input_scale_ = part_scales(partition_);
    input_scale_->keep_on_host();
    register_parameter("input_scale", input_scale_.get());
  }
}

// The library that multiplies on a device takes a scale for each row with one for each token.
bool QuantizedWeight::has_one_scale() const {
  if (scheme_.weights != QuantType::kPerTensor || partition_.is_packed()) return false;
  return device_.is_cpu() || !quantizes_activations_ || scheme_.static_activations;
}

ops::QuantFormat QuantizedWeight::format_of_parts() const {
  ops::QuantFormat format = format_;
  if (format.granularity == QuantType::kPerTensor && !has_one_scale()) {
    format.granularity = QuantType::kPerToken;
  }
  return format;
}

void QuantizedWeight::release() {
  parts_.clear();
  weight_.release();
  if (weight_scale_ != nullptr) weight_scale_->release();
}

void QuantizedWeight::encode(const Stream& stream, const Tensor& rows, int64_t first_row) {
  const int64_t count = rows.size(0);
  ops::quantize(stream,
                rows,
                {weight_.data().narrow(0, first_row, count),
                 weight_scale_->data().narrow(0, first_row, count).view({count})});
}

// The parts as memory plans see them, without memory.
void QuantizedWeight::make_parts() {
  const bool apart = quantizes_activations_ && scheme_.static_activations;
  int64_t row = 0;
  for (const RowSlice& slice : partition_.out_slices) {
    const int64_t rows = slice.rows_of_rank();
    if (apart || parts_.empty()) {
      parts_.push_back({row, rows, {}, apart ? Tensor::meta({1}, DType::kFloat32) : Tensor()});
    } else {
      parts_.back().num_rows += rows;
    }
    row += rows;
  }
  for (Part& part : parts_) {
    part.weight = ops::quantized_weight_meta(part.num_rows,
                                             partition_.local_in_features(),
                                             format_of_parts(),
                                             ops::preferred_weight_layout(device_));
  }
}

int64_t QuantizedWeight::resident_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) {
    bytes += part.weight.data.num_bytes() + part.weight.scales.num_bytes();
    if (part.input_scale.defined()) bytes += part.input_scale.num_bytes();
  }
  return bytes;
}

Status QuantizedWeight::check_loaded(const Stream& stream) const {
  const auto wrong = [&](const char* parameter, const char* what) {
    return invalid_argument("{}.{}: {}", name_, parameter, what);
  };
  constexpr const char* kBadScale = "a scale is no positive number";
  if (!scheme_.online && !are_scales(weight_scale_->data(), format_.group_size() > 0)) {
    return wrong("weight_scale", kBadScale);
  }
  if (input_scale_ != nullptr && !are_scales(input_scale_->data(), false)) {
    return wrong("input_scale", kBadScale);
  }
  const bool is_float8 = scheme_.weight_dtype == QuantDType::kFloat8E4M3;
  if (!scheme_.online && is_float8 && ops::holds_nan(stream, weight_.data())) {
    return wrong("weight", "an element is NaN");
  }
  return {};
}

// Neighbors whose activations have the same scale become one part, where that takes as much memory
// as the plan said.
void QuantizedWeight::merge_parts() {
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

void QuantizedWeight::place_input_scales(const Stream& stream) {
  const Tensor scales = resident_copy(stream, input_scale_->data());
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].input_scale = scales.narrow(0, static_cast<int64_t>(i), 1);
  }
  merge_parts();
}

// As pack_scales() takes them.
Tensor QuantizedWeight::scales_of(const Part& part) const {
  const Tensor& loaded = weight_scale_->data();
  if (scheme_.weights == QuantType::kPer128x128) {
    // Activations of blocks are never static: there is one part.
    return scales_of_blocks(loaded, part_rows(partition_), format_.scale_rows);
  }
  if (format_.group_size() > 0) return loaded.narrow(0, part.first_row, part.num_rows);
  if (scheme_.weights == QuantType::kPerToken) {
    return loaded.narrow(0, part.first_row, part.num_rows).view({part.num_rows});
  }
  if (has_one_scale()) return loaded;
  const Tensor scales = Tensor::empty({part.num_rows}, DType::kFloat32);
  int64_t row = 0, slice_index = 0;
  for (const RowSlice& slice : partition_.out_slices) {
    const float scale = loaded.data<float>()[slice_index++];
    const int64_t begin = std::max(row, part.first_row);
    row += slice.rows_of_rank();
    const int64_t end = std::min(row, part.first_row + part.num_rows);
    if (begin < end) std::fill_n(scales.data<float>() + begin - part.first_row, end - begin, scale);
  }
  return scales;
}

// On the CPU: codes as they were loaded.
void QuantizedWeight::pack_part(const Stream& stream, Part& part) {
  const int64_t in_features = partition_.local_in_features();
  part.weight = ops::make_quantized_weight(part.num_rows, in_features, format_of_parts());
  const Tensor rows = as_bytes(weight_.data().narrow(0, part.first_row, part.num_rows));
  consume_in_pieces(rows, [&](const Tensor& piece, int64_t first) {
    ops::pack_rows(stream, piece, first, part.weight);
  });
  ops::pack_scales(scales_of(part), 0, part.weight);
}

// On a device: codes where they are, which is how its kernels read them.
void QuantizedWeight::place_part(const Stream& stream, Part& part) {
  const Tensor rows = weight_.data().narrow(0, part.first_row, part.num_rows);
  part.weight.data = as_bytes(rows);
  part.weight.scales =
      encodes_
          ? weight_scale_->data().narrow(0, part.first_row, part.num_rows).view({part.num_rows})
          : resident_copy(stream, scales_of(part));
}

// Rows of floats on the host, piece by piece.
void QuantizedWeight::quantize_part(const Stream& stream, Part& part) {
  part.weight = quantize_consumed_rows(Stream(&stream.pool()),
                                       weight_.data().narrow(0, part.first_row, part.num_rows),
                                       format_of_parts(),
                                       part.weight.layout);
  if (device_.is_cpu()) return;
  part.weight.data = resident_copy(stream, part.weight.data);
  part.weight.scales = resident_copy(stream, part.weight.scales);
}

Status QuantizedWeight::finish_load(const Stream& stream) {
  RETURN_IF_ERROR(check_loaded(stream));
  if (parts_.front().input_scale.defined()) place_input_scales(stream);
  for (Part& part : parts_) {
    part.weight = ops::quantized_weight_meta(
        part.num_rows, partition_.local_in_features(), format_of_parts(), part.weight.layout);
    if (quantizes_on_host()) {
      quantize_part(stream, part);
    } else if (device_.is_cpu()) {
      pack_part(stream, part);
    } else {
      place_part(stream, part);
    }
  }
  weight_.release();
  return {};
}

}  // namespace atom
