// Headers of safetensors files and checkpoint indices from anywhere. The first byte chooses.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "loader/checkpoint.h"
#include "loader/safetensors.h"

using namespace atom;

namespace {

void check_tensors(const std::vector<TensorInfo>& tensors, uint64_t begin, uint64_t file_size) {
  uint64_t end = begin;
  for (const TensorInfo& tensor : tensors) {
    CHECK(tensor.offset == end);
    end += tensor.num_bytes;
    if (tensor.dtype) {
      const int64_t elements = tensor.shape.num_elements();
      CHECK(static_cast<uint64_t>(elements * dtype_size(*tensor.dtype)) == tensor.num_bytes);
    }
  }
  CHECK(end == file_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const uint8_t choice = data[0];
  std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  if (choice % 4 == 0) {
    const auto map = parse_checkpoint_index(rest, "fuzz");
    if (!map.ok()) return 0;
    for (const auto& [name, file] : *map) CHECK(file.find('/') == std::string::npos);
    return 0;
  }
  if (choice % 4 == 1) {
    // The bytes as they are, the length included.
    uint64_t length = 0;
    if (rest.size() >= 8) std::memcpy(&length, rest.data(), 8);
    if (rest.size() >= 8 && length <= kMaxSafetensorsHeader && length > rest.size() - 8) return 0;
    const auto tensors = parse_safetensors_header(rest, rest.size(), "fuzz");
    if (tensors.ok()) check_tensors(*tensors, 8 + length, rest.size());
    return 0;
  }
  // A right length around the text, and a chosen number of bytes of data behind it.
  const uint64_t length = rest.size();
  const uint64_t num_data_bytes = data[1] + 256u * data[2];
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, 8);
  prefix += rest;
  const uint64_t file_size = prefix.size() + num_data_bytes;
  const auto tensors = parse_safetensors_header(prefix, file_size, "fuzz");
  if (tensors.ok()) check_tensors(*tensors, prefix.size(), file_size);
  return 0;
}
