#include "nn/parameter.h"

#include <algorithm>
#include <cstring>
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

Tensor view_of(const Tensor& tensor, const Box& box) {
  Tensor part = tensor;
  for (int dim = 0; dim < part.rank(); ++dim) {
    part = part.narrow(dim, box.begin[dim], box.size[dim]);
  }
  return part;
}

// Whether the dimensions over 1 are the same: scales of rows are [N] or [N, 1].
bool same_but_for_ones(const Shape& a, const Shape& b) {
  const auto over_one = [](const Shape& shape) {
    std::vector<int64_t> sizes;
    std::copy_if(shape.begin(), shape.end(), std::back_inserter(sizes), [](int64_t size) {
      return size != 1;
    });
    return sizes;
  };
  return a == b || over_one(a) == over_one(b);
}

}  // namespace

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
    : Parameter(dtype, stacked_shape(slices, row_shape), stack_rows(slices, row_shape)) {}

Parameter::Parameter(DType dtype, const Shape& shape, std::vector<ParameterSlice> slices)
    : dtype_(dtype), data_(Tensor::meta(shape, dtype)) {
  CHECK(shape.rank() > 0);
  add_alternative(std::move(slices));
}

void Parameter::add_alternative(std::vector<ParameterSlice> slices) {
  CHECK(!slices.empty());
  CHECK(num_alternatives_ < 32);
  const uint32_t way = 1u << num_alternatives_;
  int64_t num_elements = 0;
  for (ParameterSlice& slice : slices) {
    check_slice(slice, shape());
    for (const BoxCopy& box : slice.boxes) num_elements += box.target.size.num_elements();
    const auto [place, is_new] = index_of_.emplace(slice.id, static_cast<int>(slices_.size()));
    if (is_new) slices_.push_back({std::move(slice)});
    uint32_t& ways = slices_[place->second].ways;
    CHECK((ways & way) == 0u);
    ways |= way;
  }
  CHECK(num_elements == shape().num_elements());
  ++num_alternatives_;
}

void Parameter::add_rows_of_zeros(int64_t num_rows) {
  CHECK(num_rows_of_zeros_ == 0);
  Shape shape = data_.shape();
  shape[0] += num_rows;
  num_rows_of_zeros_ = num_rows;
  data_ = Tensor::meta(shape, dtype_);
}

void Parameter::set_default(float value) {
  CHECK(dtype_ == DType::kFloat32);
  default_ = value;
}

void Parameter::allocate() {
  if (data_.has_data()) return;
  data_ = Tensor::empty(data_.shape(), dtype_);
  if (default_) std::fill_n(data_.data<float>(), data_.num_elements(), *default_);
  if (const Tensor zeros = rows_of_zeros(); zeros.num_bytes() > 0) {
    std::memset(zeros.raw_data(), 0, zeros.num_bytes());
  }
}

void Parameter::allocate(const Stream& stream) {
  if (stream.device().is_cpu() || on_host_) return allocate();
  CHECK(!default_);
  if (data_.has_data()) return;
  data_ = resident_tensor(stream, data_.shape(), dtype_);
  const Tensor zeros = rows_of_zeros();
  stream.queue().fill_zero(zeros.raw_data(), zeros.num_bytes());
}

Tensor Parameter::rows_of_zeros() const {
  return data_.narrow(0, data_.shape()[0] - num_rows_of_zeros_, num_rows_of_zeros_);
}

void Parameter::release() {
  data_ = Tensor::meta(data_.shape(), dtype_);
}

bool Parameter::is_expected(const Entry& entry) const {
  const uint32_t first = ways_ & (~ways_ + 1);
  return (entry.ways & first) != 0;
}

Status Parameter::unknown_slice(std::string_view slice_id) const {
  constexpr size_t kMaxNamed = 8;
  std::vector<std::string> expected;
  for (const Entry& entry : slices_) {
    if (!is_expected(entry)) continue;
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
  if (!same_but_for_ones(source_shape, entry.slice.source_shape)) {
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
  if ((entry.ways & ways_) == 0) {
    return invalid_argument("{}the checkpoint stores the same values in other tensors too", shard);
  }
  if (std::exchange(entry.claimed, true)) return invalid_argument("{}loaded twice", shard);
  ways_ &= entry.ways;
  return found->second;
}

std::vector<Parameter::Placement> Parameter::place(const Tensor& source, int slice) const {
  const ParameterSlice& placed = slices_[slice].slice;
  CHECK(same_but_for_ones(source.shape(), placed.source_shape));
  const bool has_own_shape = source.shape() == placed.source_shape;
  const Tensor whole_source = has_own_shape ? source : source.view(placed.source_shape);
  std::vector<Placement> placements;
  for (const BoxCopy& box : placed.boxes) {
    const Tensor from = view_of(whole_source, box.source);
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
    if (is_expected(entry) && !entry.claimed) missing.push_back(entry.slice.id);
  }
  return missing;
}

void Parameter::mark_loaded() {
  for (Entry& entry : slices_) entry.claimed = true;
}

}  // namespace atom
