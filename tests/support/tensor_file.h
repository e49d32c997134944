// A *.safetensors file of a test's own data, trusted to be well formed. What is read does not go
// through the loader, which these values test.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace atom {

class TensorFile {
 public:
  static Result<TensorFile> open(const std::string& path);

  bool contains(const std::string& name) const { return tensors_.contains(name); }
  const std::vector<int64_t>& shape(const std::string& name) const { return entry(name).shape; }
  // As the file spells it: "F32", "BF16", "F8_E4M3", "I8", "U8", ...
  const std::string& dtype(const std::string& name) const { return entry(name).dtype; }

  // Of the dtype that is stored, which has to be `dtype`.
  template <typename T>
  std::vector<T> values(const std::string& name, const char* dtype) const {
    const Entry& tensor = entry(name);
    CHECK(tensor.dtype == dtype);
    std::vector<T> values(tensor.size / sizeof(T));
    std::memcpy(values.data(), content_.data() + tensor.begin, values.size() * sizeof(T));
    return values;
  }

  // Where it begins in the file, in bytes.
  size_t offset(const std::string& name) const { return entry(name).begin; }

  // Of F32, BF16, F8_E4M3, I8 and U8.
  std::vector<double> in_double(const std::string& name) const;

 private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    size_t begin, size;  // in `content_`
  };
  const Entry& entry(const std::string& name) const;

  std::string content_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace atom
