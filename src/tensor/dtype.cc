#include "tensor/dtype.h"

#include <array>

namespace atom {
namespace {

struct DTypeRow {
  DType dtype;
  int64_t size;
  const char* name;
  const char* safetensors_name;
};

constexpr std::array<DTypeRow, 8> kDTypes = {{
    {DType::kFloat32, 4, "float32", "F32"},
    {DType::kFloat16, 2, "float16", "F16"},
    {DType::kBFloat16, 2, "bfloat16", "BF16"},
    {DType::kFloat8E4M3, 1, "float8_e4m3fn", "F8_E4M3"},
    {DType::kInt8, 1, "int8", "I8"},
    {DType::kUInt8, 1, "uint8", "U8"},
    {DType::kInt32, 4, "int32", "I32"},
    {DType::kInt64, 8, "int64", "I64"},
}};

const DTypeRow& row(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)];
}

}  // namespace

int64_t dtype_size(DType dtype) {
  return row(dtype).size;
}
const char* dtype_name(DType dtype) {
  return row(dtype).name;
}
const char* safetensors_dtype_name(DType dtype) {
  return row(dtype).safetensors_name;
}

Result<DType> parse_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "half") return DType::kFloat16;
  if (name == "float") return DType::kFloat32;
  for (const DTypeRow& candidate : kDTypes) {
    if (name == candidate.name) return candidate.dtype;
  }
  return invalid_argument("unknown dtype '{}': use bfloat16, float16 or float32", name);
}

Result<DType> parse_safetensors_dtype(std::string_view name) {
  for (const DTypeRow& candidate : kDTypes) {
    if (name == candidate.safetensors_name) return candidate.dtype;
  }
  return invalid_argument(
      "unsupported tensor dtype '{}': atom reads F32, F16, BF16, F8_E4M3, I8, U8, I32, I64", name);
}

}  // namespace atom
