#include "nn/parameter.h"

#include <algorithm>
#include <utility>

#include "tensor/device_arena.h"

namespace atom {
namespace {

bool converts(DType from, DType to) {
  const auto is_plain_float = [](DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  };
  return from == to || (is_plain_float(from) && is_plain_float(to));
}

void check_part(int64_t size, const ShardPart& part) {
  CHECK(part.world >= 1);
  CHECK(part.rank >= 0);
  CHECK(part.rank < part.world);
  CHECK(size % part.world == 0);
}

}  // namespace

Parameter::Slice& Parameter::add_slice() {
  return *slices_.emplace_back(std::make_unique<Slice>());
}

Parameter::Parameter(DType dtype, const Shape& full_shape)
    : dtype_(dtype), full_shape_(full_shape), data_(Tensor::meta(full_shape, dtype)) {
  CHECK(full_shape.rank() > 0);
  Slice& slice = add_slice();
  slice.source_shape = full_shape;
  slice.target_rows = full_shape[0];
}

Parameter::Parameter(DType dtype, const Shape& full_shape, int shard_dim, ShardPart part)
    : Parameter(dtype, full_shape) {
  CHECK(shard_dim >= 0);
  CHECK(shard_dim < full_shape.rank());
  check_part(full_shape[shard_dim], part);
  Shape shape = full_shape;
  shape[shard_dim] /= part.world;
  data_ = Tensor::meta(shape, dtype);
  Slice& slice = *slices_[0];
  slice.shard_dim = shard_dim;
  slice.part = part;
  slice.target_rows = shape[0];
}

Parameter::Parameter(DType dtype, std::vector<ParameterSlice> slices, const Shape& row_shape)
    : dtype_(dtype) {
  CHECK(!slices.empty());
  std::vector<int64_t> sizes = {0};
  sizes.insert(sizes.end(), row_shape.begin(), row_shape.end());
  full_shape_ = Shape(sizes);
  Shape shape(sizes);
  for (ParameterSlice& declared : slices) {
    check_part(declared.rows, declared.part);
    for (const auto& other : slices_) CHECK(other->id != declared.id);
    Slice& slice = add_slice();
    slice.id = std::move(declared.id);
    slice.source_shape = Shape(sizes);
    slice.source_shape[0] = declared.rows;
    slice.shard_dim = 0;
    slice.part = declared.part;
    slice.target_begin = shape[0];
    slice.target_rows = declared.rows / declared.part.world;
    full_shape_[0] += declared.rows;
    shape[0] += slice.target_rows;
  }
  data_ = Tensor::meta(shape, dtype);
}

void Parameter::set_default(float value) {
  CHECK(dtype_ == DType::kFloat32);
  default_ = value;
}

void Parameter::allocate() {
  if (data_.has_data()) return;
  data_ = Tensor::empty(data_.shape(), dtype_);
  if (default_) std::fill_n(data_.data<float>(), data_.num_elements(), *default_);
}

void Parameter::allocate(const Stream& stream) {
  if (stream.device().is_cpu() || on_host_) return allocate();
  CHECK(!default_);
  if (!data_.has_data()) data_ = resident_tensor(stream, data_.shape(), dtype_);
}

void Parameter::release() {
  data_ = Tensor::meta(data_.shape(), dtype_);
}

Result<int> Parameter::claim(const Shape& source_shape,
                             DType source_dtype,
                             std::string_view slice_id) {
  const std::string shard = slice_id.empty() ? "" : fmt::format("shard '{}': ", slice_id);
  for (size_t i = 0; i < slices_.size(); ++i) {
    Slice& slice = *slices_[i];
    if (slice.id != slice_id) continue;
    if (!(source_shape == slice.source_shape)) {
      return invalid_argument("{}found shape {}, expected {}",
                              shard,
                              source_shape.to_string(),
                              slice.source_shape.to_string());
    }
    if (computed_) return invalid_argument("{}is made from others, not loaded", shard);
    if (!converts(source_dtype, encoder_ != nullptr ? encoder_->source_dtype() : dtype_)) {
      return invalid_argument("{}found dtype {}, which does not convert to {}",
                              shard,
                              dtype_name(source_dtype),
                              dtype_name(dtype_));
    }
    if (slice.claimed.exchange(true)) return invalid_argument("{}loaded twice", shard);
    return static_cast<int>(i);
  }
  std::string expected;
  for (const auto& slice : slices_) {
    if (!expected.empty()) expected += ", ";
    expected += slice->id.empty() ? "the whole tensor" : "'" + slice->id + "'";
  }
  return invalid_argument(
      "{}no such shard; expected {}", slice_id.empty() ? "the whole tensor: " : shard, expected);
}

Parameter::Placement Parameter::place(const Tensor& source, int index) const {
  const Slice& slice = *slices_[index];
  CHECK(source.shape() == slice.source_shape);
  Placement placement{
      source, data_.narrow(0, slice.target_begin, slice.target_rows), encoder_, slice.target_begin};
  if (slice.shard_dim >= 0) {
    const int64_t size = source.size(slice.shard_dim) / slice.part.world;
    placement.source = source.narrow(slice.shard_dim, slice.part.rank * size, size);
  }
  return placement;
}

Status Parameter::load(const Tensor& source, std::string_view slice_id) {
  CHECK(data_.has_data());
  CHECK(encoder_ == nullptr);
  ASSIGN_OR_RETURN(const int slice, claim(source.shape(), source.dtype(), slice_id));
  const Placement placement = place(source, slice);
  copy_convert(placement.source, placement.target);
  return {};
}

std::vector<std::string> Parameter::missing_slices() const {
  std::vector<std::string> missing;
  if (default_ || computed_) return missing;
  for (const auto& slice : slices_) {
    if (!slice->claimed.load()) missing.push_back(slice->id);
  }
  return missing;
}

void Parameter::mark_loaded() {
  for (const auto& slice : slices_) slice->claimed.store(true);
}

}  // namespace atom
