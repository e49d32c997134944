#include "tensor/workspace.h"

#include <algorithm>

namespace atom {

Workspace::Workspace(int64_t capacity, Device device)
    : Workspace(Tensor::empty({capacity}, DType::kUInt8, device)) {}

Workspace::Workspace(Tensor memory)
    : memory_(std::move(memory)), measuring_(false), capacity_(memory_.num_bytes()) {}

Tensor Workspace::tensor(const Shape& shape, DType dtype) {
  constexpr int64_t kAlignment = 64;
  const int64_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  used_ = begin + shape.num_elements() * dtype_size(dtype);
  peak_ = std::max(peak_, used_);
  if (measuring_) return Tensor::meta(shape, dtype);
  CHECK(used_ <= capacity_);
  return Tensor(memory_.data<uint8_t>() + begin, dtype, shape, nullptr, memory_.device());
}

}  // namespace atom
