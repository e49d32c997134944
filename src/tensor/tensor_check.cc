#include "tensor/tensor_check.h"

#include <cstdlib>

namespace atom {

TensorCheck& TensorCheck::tensor(const char* name,
                                 const Tensor& tensor,
                                 std::initializer_list<const char*> sizes,
                                 DType dtype) {
  if (tensor.rank() != static_cast<int>(sizes.size())) {
    fail(name, tensor, fmt::format("rank is {}, should be {}", tensor.rank(), sizes.size()));
  }
  if (tensor.dtype() != dtype) {
    fail(name, tensor, fmt::format("dtype should be {}", dtype_name(dtype)));
  }
  int dim = 0;
  for (const char* size_name : sizes) {
    const int64_t actual = tensor.size(dim);
    int64_t expected = actual;
    if (*size_name >= '0' && *size_name <= '9') {
      expected = std::atoll(size_name);
    } else {
      bool found = false;
      for (const auto& [bound_name, value] : bound_) {
        if (bound_name == size_name) {
          expected = value;
          found = true;
        }
      }
      if (!found) bound_.emplace_back(size_name, actual);
    }
    if (actual != expected) {
      fail(name, tensor, fmt::format("dimension {} ({}) should be {}", dim, size_name, expected));
    }
    ++dim;
  }
  if (tensor.rank() > 0 && tensor.size(-1) > 1 && tensor.stride(-1) != 1) {
    fail(name, tensor, "the last dimension should be contiguous");
  }
  return *this;
}

TensorCheck& TensorCheck::contiguous(const char* name,
                                     const Tensor& t,
                                     std::initializer_list<const char*> sizes,
                                     DType dtype) {
  tensor(name, t, sizes, dtype);
  if (!t.is_contiguous()) fail(name, t, "should be contiguous");
  return *this;
}

int64_t TensorCheck::size(const char* size_name) const {
  for (const auto& [bound_name, value] : bound_) {
    if (bound_name == size_name) return value;
  }
  check_failed("size name is bound", size_name, __FILE__, __LINE__);
}

void TensorCheck::fail(const char* tensor_name,
                       const Tensor& tensor,
                       const std::string& why) const {
  const std::string detail =
      fmt::format("[{}] {} is {}: {}", op_, tensor_name, tensor.to_string(), why);
  check_failed("tensor contract", detail, __FILE__, __LINE__);
}

}  // namespace atom
