#include "tests/support/stored_tensor.h"

#include <fmt/format.h>

#include <fstream>

namespace atom {

Status write_text(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) return invalid_argument("{}: cannot write", path);
  return {};
}

Status write_safetensors(const std::string& path, const std::vector<StoredTensor>& tensors) {
  std::string header = R"({"__metadata__": {"format": "pt"})";
  std::string data;
  for (const StoredTensor& tensor : tensors) {
    std::string shape;
    for (const int64_t extent : tensor.shape) {
      shape += fmt::format("{}{}", shape.empty() ? "" : ", ", extent);
    }
    header += fmt::format(R"(, "{}": {{"dtype": "{}", "shape": [{}], "data_offsets": [{}, {}]}})",
                          tensor.name,
                          tensor.dtype,
                          shape,
                          data.size(),
                          data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file;
  append_value(file, static_cast<uint64_t>(header.size()));
  return write_text(path, file + header + data);
}

}  // namespace atom
