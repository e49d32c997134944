#include "loader/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace atom {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr uint64_t kLengthSize = 8;
constexpr size_t kMaxNameSize = 1024;

struct FormatDType {
  std::string_view name;
  uint64_t bits;
};

// Every dtype of the format; parse_safetensors_dtype knows which of them atom has.
constexpr std::array<FormatDType, 22> kFormatDTypes = {
    {{"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"U8", 8},
     {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},     {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"I16", 16}, {"U16", 16},    {"F8_E5M2FNUZ", 8}, {"F16", 16},    {"BF16", 16},
     {"I32", 32}, {"U32", 32},    {"F32", 32},        {"C64", 64},    {"F64", 64},
     {"I64", 64}, {"U64", 64}}};

std::optional<uint64_t> bits_of(std::string_view dtype_name) {
  for (const FormatDType& dtype : kFormatDTypes) {
    if (dtype.name == dtype_name) return dtype.bits;
  }
  return std::nullopt;
}

std::optional<uint64_t> as_unsigned(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

// Bytes of so many elements; nothing when it overflows or is no whole number.
std::optional<uint64_t> data_size(const Shape& shape, uint64_t bits) {
  uint64_t total = bits;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) return std::nullopt;
  }
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

// One header being read; messages name the file and the tensor.
class HeaderParser {
 public:
  HeaderParser(std::string_view where, uint64_t data_begin, uint64_t file_size)
      : where_(where), data_begin_(data_begin), data_size_(file_size - data_begin) {}

  Result<std::vector<TensorInfo>> parse(const Json& header) const {
    std::vector<TensorInfo> tensors;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        RETURN_IF_ERROR(check_metadata(value));
        continue;
      }
      ASSIGN_OR_RETURN(TensorInfo info, parse_tensor(name, value));
      tensors.push_back(std::move(info));
    }
    RETURN_IF_ERROR(check_coverage(&tensors));
    return tensors;
  }

 private:
  template <typename... Args>
  Status error(const std::string& name, fmt::format_string<Args...> format, Args&&... args) const {
    return invalid_argument("{}: tensor '{}': {}",
                            where_,
                            name.substr(0, 200),
                            fmt::format(format, std::forward<Args>(args)...));
  }

  Status check_metadata(const Json& metadata) const {
    bool strings = metadata.is_object();
    for (const Json& value : metadata) strings = strings && value.is_string();
    if (strings) return {};
    return invalid_argument("{}: '__metadata__' is no object of strings", where_);
  }

  Result<Shape> parse_shape(const std::string& name, const Json& json) const {
    if (!json.is_array()) return error(name, "'shape' is no array");
    if (json.size() > size_t{Shape::kMaxRank}) {
      return error(name, "{} dimensions; expected at most {}", json.size(), Shape::kMaxRank);
    }
    std::vector<int64_t> sizes;
    for (const Json& item : json) {
      const std::optional<uint64_t> size = as_unsigned(item);
      if (!size || *size > static_cast<uint64_t>(INT64_MAX)) {
        return error(name, "'shape' holds something else than sizes");
      }
      sizes.push_back(static_cast<int64_t>(*size));
    }
    return Shape(sizes);
  }

  Result<TensorInfo> parse_tensor(const std::string& name, const Json& json) const {
    if (name.empty() || name.size() > kMaxNameSize || name.find('\0') != std::string::npos) {
      return error(name, "expected a name of 1 to {} bytes without NUL", kMaxNameSize);
    }
    if (!json.is_object() || json.size() != 3 || !json.contains("dtype") ||
        !json.contains("shape") || !json.contains("data_offsets")) {
      return error(name, "expected an object of 'dtype', 'shape' and 'data_offsets'");
    }
    TensorInfo info;
    info.name = name;
    const Json& dtype = json["dtype"];
    const std::optional<uint64_t> bits =
        dtype.is_string() ? bits_of(dtype.get_ref<const std::string&>()) : std::nullopt;
    if (!bits) return error(name, "'dtype' is none of the format's");
    info.dtype_name = dtype.get<std::string>();
    const Result<DType> supported = parse_safetensors_dtype(info.dtype_name);
    if (supported.ok()) info.dtype = *supported;
    ASSIGN_OR_RETURN(info.shape, parse_shape(name, json["shape"]));

    const Json& offsets = json["data_offsets"];
    const bool pair = offsets.is_array() && offsets.size() == 2;
    const std::optional<uint64_t> begin = pair ? as_unsigned(offsets[0]) : std::nullopt;
    const std::optional<uint64_t> end = pair ? as_unsigned(offsets[1]) : std::nullopt;
    if (!begin || !end || *begin > *end) {
      return error(name, "'data_offsets' is no pair [begin, end]");
    }
    if (*end > data_size_) {
      return error(name,
                   "data ends at byte {} of {}: the file is truncated or its header wrong",
                   *end,
                   data_size_);
    }
    const std::optional<uint64_t> expected = data_size(info.shape, *bits);
    if (!expected || *expected != *end - *begin) {
      return error(name,
                   "{} bytes of data do not make {} elements of {}",
                   *end - *begin,
                   info.shape.to_string(),
                   info.dtype_name);
    }
    info.offset = data_begin_ + *begin;
    info.num_bytes = *expected;
    return info;
  }

  // Sorts the tensors by offset; together they must be the whole rest of the file.
  Status check_coverage(std::vector<TensorInfo>* tensors) const {
    std::sort(tensors->begin(), tensors->end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(a.offset, a.num_bytes) < std::pair(b.offset, b.num_bytes);
    });
    uint64_t end = data_begin_;
    for (const TensorInfo& tensor : *tensors) {
      if (tensor.offset < end) return error(tensor.name, "its data overlaps another tensor's");
      if (tensor.offset > end) {
        return error(
            tensor.name, "{} bytes before its data belong to no tensor", tensor.offset - end);
      }
      end += tensor.num_bytes;
    }
    if (end != data_begin_ + data_size_) {
      return invalid_argument(
          "{}: {} bytes at the end belong to no tensor", where_, data_begin_ + data_size_ - end);
    }
    return {};
  }

  std::string_view where_;
  uint64_t data_begin_;
  uint64_t data_size_;
};

// The length of the JSON text, from the first 8 bytes.
Result<uint64_t> header_length(std::string_view prefix,
                               uint64_t file_size,
                               std::string_view where) {
  if (file_size < kLengthSize || prefix.size() < kLengthSize) {
    return invalid_argument(
        "{}: {} bytes are too few for a safetensors file: truncated?", where, file_size);
  }
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), sizeof(length));
  if (length > kMaxSafetensorsHeader) {
    return invalid_argument(
        "{}: header of {} bytes is over the format's limit of {}: not a safetensors file?",
        where,
        length,
        kMaxSafetensorsHeader);
  }
  if (length > file_size - kLengthSize) {
    return invalid_argument(
        "{}: header of {} bytes ends behind the file of {}: truncated?", where, length, file_size);
  }
  return length;
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view prefix,
                                                         uint64_t file_size,
                                                         std::string_view where) {
  ASSIGN_OR_RETURN(const uint64_t length, header_length(prefix, file_size, where));
  CHECK(prefix.size() >= kLengthSize + length);
  const std::string_view text = prefix.substr(kLengthSize, length);
  if (!text.starts_with('{')) {
    return invalid_argument("{}: the header is no JSON object: not a safetensors file?", where);
  }
  JsonLimits limits;
  limits.max_bytes = kMaxSafetensorsHeader;
  limits.max_depth = 4;
  limits.max_nodes = 8'000'000;
  limits.max_keys_per_object = 500'000;
  ASSIGN_OR_RETURN(const Json header, parse_json(text, where, limits));
  return HeaderParser(where, kLengthSize + length, file_size).parse(header);
}

Result<std::vector<TensorInfo>> read_safetensors_header(const std::string& path,
                                                        uint64_t* file_size) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return not_found("{}: no such file, or not a regular one", path);
  }
  const uint64_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return invalid_argument("{}: cannot open", path);
  if (file_size != nullptr) *file_size = size;

  std::string prefix(std::min(size, kLengthSize), '\0');
  file.read(prefix.data(), static_cast<std::streamsize>(prefix.size()));
  ASSIGN_OR_RETURN(const uint64_t length, header_length(prefix, size, path));
  prefix.resize(kLengthSize + length);
  file.read(prefix.data() + kLengthSize, static_cast<std::streamsize>(length));
  if (!file) return invalid_argument("{}: cannot read the header", path);
  return parse_safetensors_header(prefix, size, path);
}

}  // namespace atom
