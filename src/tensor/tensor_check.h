// States an operator's tensor contract with named sizes: the first use of a name binds it, later
// uses must agree, and a violation is a CHECK that names the operator, the tensor and the
// dimension.
//   TensorCheck check("rms_norm");
//   const int64_t& T = check.size("T"); ...
//   check.tensor("x", x, {"T", "D"}, x.dtype());
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace atom {

class TensorCheck {
 public:
  explicit TensorCheck(const char* op) : op_(op) {}

  // Checks rank, sizes and dtype, and that the last dimension is contiguous. A size is a name, or a
  // number in decimal ("1").
  TensorCheck& tensor(const char* name,
                      const Tensor& tensor,
                      std::initializer_list<const char*> sizes,
                      DType dtype);
  // The same, and wholly contiguous.
  TensorCheck& contiguous(const char* name,
                          const Tensor& tensor,
                          std::initializer_list<const char*> sizes,
                          DType dtype);
  // The value bound to a size name.
  int64_t size(const char* size_name) const;

 private:
  [[noreturn]] void fail(const char* tensor_name,
                         const Tensor& tensor,
                         const std::string& why) const;

  const char* op_;
  std::vector<std::pair<std::string, int64_t>> bound_;
};

}  // namespace atom
