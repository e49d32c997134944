#include "tensor/workspace.h"

#include <algorithm>

#include "tensor/device_arena.h"
#include "tensor/fill.h"

namespace atom {

Workspace::Workspace(int64_t capacity)
    : memory_(Tensor::empty({capacity}, DType::kUInt8)), measuring_(false), capacity_(capacity) {}

Workspace::Workspace(const Stream& stream, int64_t capacity)
    : memory_(resident_tensor(stream, {capacity}, DType::kUInt8)),
      measuring_(false),
      capacity_(capacity) {
  if (stream.device().is_cpu()) return;
  counters_ = resident_tensor(stream, {kNumCounters}, DType::kInt32);
  fill_zero(stream, counters_);
}

void Workspace::skip_behind(const Tensor& tensor) {
  if (measuring_) return;
  const auto* end = static_cast<const uint8_t*>(tensor.raw_data()) + tensor.num_bytes();
  const int64_t used = end - memory_.data<uint8_t>();
  CHECK(used >= 0);
  CHECK(used <= capacity_);
  used_ = std::max(used_, used);
}

Tensor Workspace::tensor(const Shape& shape, DType dtype) {
  constexpr int64_t kTensorAlignment = 64;
  const int64_t begin = (used_ + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  used_ = begin + shape.num_elements() * dtype_size(dtype);
  peak_ = std::max(peak_, used_);
  if (measuring_) return Tensor::meta(shape, dtype);
  CHECK(used_ <= capacity_);
  return Tensor(memory_.data<uint8_t>() + begin, dtype, shape, nullptr, memory_.device());
}

}  // namespace atom
