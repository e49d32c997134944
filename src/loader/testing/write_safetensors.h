// For tests: safetensors files and model folders, also wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace atom::testing {

struct TensorToWrite {
  std::string name;
  Tensor data;  // contiguous
};

// A float tensor's values rounded to `dtype`.
Tensor make_tensor(const Shape& shape, DType dtype, const std::vector<float>& values);

// A whole file around a header and data given as they are.
std::string safetensors_bytes(std::string_view header_json, std::string_view data);
std::string safetensors_bytes(const std::vector<TensorToWrite>& tensors);

void write_file(const std::string& path, std::string_view bytes);
void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors);

}  // namespace atom::testing
