// Tensors that a test makes, and the *.safetensors file that holds them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"

namespace atom {

struct StoredTensor {
  std::string name;
  std::string dtype;           // as a safetensors header spells it
  std::vector<int64_t> shape;  // empty for a scalar
  std::string bytes;           // little-endian, row-major
};

// Its bytes as they are in memory.
template <typename T>
void append_value(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

inline std::string bytes_of(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) append_value(bytes, value);
  return bytes;
}

Status write_text(const std::string& path, const std::string& content);

Status write_safetensors(const std::string& path, const std::vector<StoredTensor>& tensors);

}  // namespace atom
