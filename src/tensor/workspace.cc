#include "tensor/workspace.h"

#include <algorithm>

namespace atom {

Workspace::Workspace(int64_t capacity)
    : memory_(Tensor::empty({capacity}, DType::kUInt8)), measuring_(false), capacity_(capacity) {}

Tensor Workspace::tensor(const Shape& shape, DType dtype) {
  const int64_t begin = (used_ + 63) / 64 * 64;
  used_ = begin + shape.num_elements() * dtype_size(dtype);
  peak_ = std::max(peak_, used_);
  if (measuring_) return Tensor::meta(shape, dtype);
  CHECK(used_ <= capacity_);
  return Tensor(memory_.data<uint8_t>() + begin, dtype, shape);
}

}  // namespace atom
