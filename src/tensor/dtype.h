// Element types of tensors, with the names that safetensors and config.json use for them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace atom {

enum class DType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,
  kInt8,
  kUInt8,
  kInt32,
  kInt64
};

// Bytes of one element.
int64_t dtype_size(DType dtype);

// "float32", "bfloat16", ... as config.json and flags spell them.
const char* dtype_name(DType dtype);

// From a name of config.json ("bfloat16", "torch.bfloat16"; "half", "float" as aliases).
Result<DType> parse_dtype(std::string_view name);

// From a safetensors header ("BF16", "F32", "F8_E4M3", "I8", ...).
Result<DType> parse_safetensors_dtype(std::string_view name);
const char* safetensors_dtype_name(DType dtype);

}  // namespace atom
