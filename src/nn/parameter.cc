#include "nn/parameter.h"

#include <algorithm>
#include <iterator>
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

void check_within(const Box& box, const Shape& shape) {
  CHECK(box.begin.rank() == shape.rank());
  CHECK(box.size.rank() == shape.rank());
  for (int dim = 0; dim < shape.rank(); ++dim) {
    CHECK(box.begin[dim] >= 0);
    CHECK(box.size[dim] >= 0);
    CHECK(box.begin[dim] + box.size[dim] <= shape[dim]);
  }
}

// The sizes other than 1.
std::vector<int64_t> significant(const Shape& shape) {
  std::vector<int64_t> sizes;
  std::ranges::copy_if(shape, std::back_inserter(sizes), [](int64_t size) { return size != 1; });
  return sizes;
}

void check_slice(const ParameterSlice& slice, const Shape& shape) {
  for (const auto& [source, target] : slice.boxes) {
    check_within(source, slice.source_shape);
    check_within(target, shape);
    CHECK((significant(source.size) == significant(target.size)));
  }
}

Tensor view_of(const Tensor& tensor, const Box& box) {
  Tensor part = tensor;
  for (int dim = 0; dim < part.rank(); ++dim) {
    part = part.narrow(dim, box.begin[dim], box.size[dim]);
  }
  return part;
}

Shape shape_of_part(Shape shape, int dim, const ShardPart& part) {
  shape[dim] /= part.world;
  return shape;
}

// [rows, row_shape...]
Shape stacked(int64_t rows, const Shape& row_shape) {
  std::vector<int64_t> sizes = {rows};
  sizes.insert(sizes.end(), row_shape.begin(), row_shape.end());
  return Shape(sizes);
}

int64_t rows_of_rank(const std::vector<RowSlice>& slices) {
  int64_t rows = 0;
  for (const RowSlice& slice : slices) rows += slice.rows_of_rank();
  return rows;
}

std::vector<ParameterSlice> stack_rows(const std::vector<RowSlice>& slices,
                                       const Shape& row_shape) {
  std::vector<ParameterSlice> boxes;
  int64_t row = 0;
  for (const RowSlice& slice : slices) {
    const Shape shape = stacked(slice.rows, row_shape);
    check_part(slice.rows, slice.part);
    std::vector<RowRun> runs = slice.runs;
    if (runs.empty()) runs = {{slice.part.rank * slice.rows_of_rank(), slice.rows_of_rank()}};
    ParameterSlice copied{slice.id, shape, {}};
    for (const RowRun& run : runs) {
      Box source = whole(stacked(run.count, row_shape));
      Box target = source;
      source.begin[0] = run.begin;
      target.begin[0] = row;
      row += run.count;
      copied.boxes.push_back({source, target});
    }
    boxes.push_back(std::move(copied));
  }
  return boxes;
}

}  // namespace

Box whole(const Shape& shape) {
  Shape begin = shape;
  for (int dim = 0; dim < shape.rank(); ++dim) begin[dim] = 0;
  return {begin, shape};
}

Box part_of(const Shape& shape, int dim, const ShardPart& part) {
  CHECK(dim >= 0);
  CHECK(dim < shape.rank());
  check_part(shape[dim], part);
  Box box = whole(shape_of_part(shape, dim, part));
  box.begin[dim] = part.rank * box.size[dim];
  return box;
}

Parameter::Parameter(DType dtype, const Shape& shape)
    : Parameter(dtype, shape, {{"", shape, {{whole(shape), whole(shape)}}}}) {}

Parameter::Parameter(DType dtype, const Shape& full_shape, int shard_dim, ShardPart part)
    : Parameter(dtype,
                part_of(full_shape, shard_dim, part).size,
                {{"",
                  full_shape,
                  {{part_of(full_shape, shard_dim, part),
                    whole(part_of(full_shape, shard_dim, part).size)}}}}) {}

Parameter::Parameter(DType dtype, const std::vector<RowSlice>& slices, const Shape& row_shape)
    : Parameter(dtype, stacked(rows_of_rank(slices), row_shape), stack_rows(slices, row_shape)) {}

Parameter::Parameter(DType dtype, const Shape& shape, std::vector<ParameterSlice> slices)
    : dtype_(dtype), data_(Tensor::meta(shape, dtype)) {
  CHECK(shape.rank() > 0);
  add_alternative(std::move(slices));
}

void Parameter::add_alternative(std::vector<ParameterSlice> slices) {
  CHECK(!slices.empty());
  int64_t num_elements = 0;
  for (ParameterSlice& slice : slices) {
    check_slice(slice, shape());
    for (const BoxCopy& box : slice.boxes) num_elements += box.target.size.num_elements();
    const auto index = static_cast<int>(slices_.size());
    CHECK(index_of_.emplace(slice.id, index).second);
    slices_.push_back({std::move(slice), num_alternatives_});
  }
  CHECK(num_elements == shape().num_elements());
  ++num_alternatives_;
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

int Parameter::alternative() const {
  return chosen_.value_or(0);
}

Status Parameter::unknown_slice(std::string_view slice_id) const {
  constexpr size_t kMaxNamed = 8;
  std::vector<std::string> expected;
  for (const Entry& entry : slices_) {
    if (entry.alternative != alternative()) continue;
    const std::string& id = entry.slice.id;
    expected.push_back(id.empty() ? "the whole tensor" : "'" + id + "'");
  }
  const size_t num_named = std::min(expected.size(), kMaxNamed);
  return invalid_argument(
      "{}no such shard; expected {}{}",
      slice_id.empty() ? "the whole tensor: " : fmt::format("shard '{}': ", slice_id),
      fmt::join(expected.begin(), expected.begin() + num_named, ", "),
      num_named < expected.size() ? ", ..." : "");
}

Result<int> Parameter::claim(const Shape& source_shape,
                             DType source_dtype,
                             std::string_view slice_id) {
  const auto found = index_of_.find(slice_id);
  if (found == index_of_.end()) return unknown_slice(slice_id);
  const std::string shard = slice_id.empty() ? "" : fmt::format("shard '{}': ", slice_id);
  Entry& entry = slices_[found->second];
  if (!(source_shape == entry.slice.source_shape)) {
    return invalid_argument("{}found shape {}, expected {}",
                            shard,
                            source_shape.to_string(),
                            entry.slice.source_shape.to_string());
  }
  if (computed_) return invalid_argument("{}is made from others, not loaded", shard);
  if (!converts(source_dtype, encoder_ != nullptr ? encoder_->source_dtype() : dtype_)) {
    return invalid_argument("{}found dtype {}, which does not convert to {}",
                            shard,
                            dtype_name(source_dtype),
                            dtype_name(dtype_));
  }
  if (entry.alternative != chosen_.value_or(entry.alternative)) {
    return invalid_argument("{}the checkpoint stores the same values in other tensors too", shard);
  }
  if (std::exchange(entry.claimed, true)) return invalid_argument("{}loaded twice", shard);
  chosen_ = entry.alternative;
  return found->second;
}

std::vector<Parameter::Placement> Parameter::place(const Tensor& source, int slice) const {
  const ParameterSlice& placed = slices_[slice].slice;
  CHECK(source.shape() == placed.source_shape);
  std::vector<Placement> placements;
  for (const BoxCopy& box : placed.boxes) {
    const Tensor from = view_of(source, box.source);
    Tensor to = view_of(data_, box.target);
    if (!(to.shape() == from.shape())) to = to.view(from.shape());
    placements.push_back({from, to, encoder_, box.target.begin[0]});
  }
  return placements;
}

Status Parameter::load(const Tensor& source, std::string_view slice_id) {
  CHECK(data_.has_data());
  CHECK(encoder_ == nullptr);
  ASSIGN_OR_RETURN(const int slice, claim(source.shape(), source.dtype(), slice_id));
  for (const Placement& placement : place(source, slice)) {
    copy_convert(placement.source, placement.target);
  }
  return {};
}

std::vector<std::string> Parameter::missing_slices() const {
  std::vector<std::string> missing;
  if (default_ || computed_) return missing;
  for (const Entry& entry : slices_) {
    if (entry.alternative == alternative() && !entry.claimed) missing.push_back(entry.slice.id);
  }
  return missing;
}

void Parameter::mark_loaded() {
  for (Entry& entry : slices_) entry.claimed = true;
}

}  // namespace atom
