// The header of a safetensors file, checked completely before anything is read through it: the data
// of the tensors covers the rest of the file without gap or overlap, every size equals shape times
// dtype, names are unique.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace atom {

struct TensorInfo {
  std::string name;
  std::string dtype_name;      // as the file spells it: "BF16"
  std::optional<DType> dtype;  // none: a dtype of the format that atom does not compute with
  Shape shape;
  uint64_t offset = 0;  // of the first byte, from the beginning of the file
  uint64_t num_bytes = 0;
};

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes, the format's own limit

// `prefix` begins with the file's first byte and holds at least the 8 bytes of length and the
// header. The tensors come in the order of their data. `where` begins each message.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view prefix,
                                                         uint64_t file_size,
                                                         std::string_view where);

// The same of a file, of which only the header is read. file_size, unless null, is set.
Result<std::vector<TensorInfo>> read_safetensors_header(const std::string& path,
                                                        uint64_t* file_size);

}  // namespace atom
