#include "tests/support/tensor_file.h"

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/file.h"
#include "base/json.h"

namespace atom {
namespace {

constexpr size_t kMaxFileSize = size_t{256} << 20;

double float8_in_double(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

}  // namespace

Result<TensorFile> TensorFile::open(const std::string& path) {
  TensorFile file;
  ASSIGN_OR_RETURN(file.content_, read_file(path, kMaxFileSize));
  uint64_t header_size = 0;
  if (file.content_.size() < sizeof(header_size)) return invalid_argument("{}: too short", path);
  std::memcpy(&header_size, file.content_.data(), sizeof(header_size));
  if (header_size > file.content_.size() - sizeof(header_size)) {
    return invalid_argument("{}: header ends after the file", path);
  }
  const size_t data = sizeof(header_size) + header_size;
  const std::string_view text(file.content_.data() + sizeof(header_size), header_size);
  ASSIGN_OR_RETURN(const Json header, parse_json(text, path));
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = tensor.at("data_offsets").at(0), end = tensor.at("data_offsets").at(1);
    CHECK(begin <= end);
    CHECK(end <= file.content_.size() - data);
    file.tensors_[name] = {tensor.at("dtype"), tensor.at("shape"), data + begin, end - begin};
  }
  return file;
}

const TensorFile::Entry& TensorFile::entry(const std::string& name) const {
  const auto found = tensors_.find(name);
  CHECK((found != tensors_.end()));
  return found->second;
}

std::vector<double> TensorFile::in_double(const std::string& name) const {
  const auto all = [](const auto& stored, const auto& convert) {
    std::vector<double> values;
    values.reserve(stored.size());
    for (const auto value : stored) values.push_back(convert(value));
    return values;
  };
  const auto as_is = [](auto value) { return static_cast<double>(value); };
  const std::string& type = dtype(name);
  if (type == "F32") return all(values<float>(name, "F32"), as_is);
  if (type == "I8") return all(values<int8_t>(name, "I8"), as_is);
  if (type == "U8") return all(values<uint8_t>(name, "U8"), as_is);
  if (type == "F8_E4M3") return all(values<uint8_t>(name, "F8_E4M3"), float8_in_double);
  return all(values<uint16_t>(name, "BF16"), [](uint16_t bits) {
    return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16));
  });
}

}  // namespace atom
