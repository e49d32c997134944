#include "loader/testing/write_safetensors.h"

#include <cstring>
#include <fstream>

#include "tensor/dispatch.h"

namespace atom::testing {

Tensor make_tensor(const Shape& shape, DType dtype, const std::vector<float>& values) {
  CHECK(shape.num_elements() == static_cast<int64_t>(values.size()));
  Tensor tensor = Tensor::empty(shape, dtype);
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    for (size_t i = 0; i < values.size(); ++i) tensor.data<T>()[i] = from_float<T>(values[i]);
  });
  return tensor;
}

std::string safetensors_bytes(std::string_view header_json, std::string_view data) {
  const uint64_t length = header_json.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += header_json;
  bytes += data;
  return bytes;
}

std::string safetensors_bytes(const std::vector<TensorToWrite>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    CHECK(tensor.data.is_contiguous());
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                          tensor.name,
                          safetensors_dtype_name(tensor.data.dtype()),
                          tensor.data.shape().to_string(),
                          data.size(),
                          data.size() + tensor.data.num_bytes());
    data.append(static_cast<const char*>(tensor.data.raw_data()), tensor.data.num_bytes());
  }
  return safetensors_bytes(header + "}", data);
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  CHECK(file.good());
}

void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  write_file(path, safetensors_bytes(tensors));
}

}  // namespace atom::testing
