#include "tests/golden/header_folder.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"

namespace atom {
namespace {

constexpr size_t kMaxFileSize = size_t{16} << 20;

struct HeaderDType {
  const char* name;  // in a safetensors header
  int64_t size;
};

const HeaderDType& header_dtype(const std::string& name) {
  static const std::map<std::string, HeaderDType> dtypes = {{"bfloat16", {"BF16", 2}},
                                                            {"float32", {"F32", 4}},
                                                            {"float8_e4m3fn", {"F8_E4M3", 1}},
                                                            {"int8", {"I8", 1}},
                                                            {"uint8", {"U8", 1}}};
  return dtypes.at(name);
}

Result<Json> read_json(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileSize));
  return parse_json(text, path);
}

}  // namespace

Result<std::unique_ptr<HeaderFolder>> HeaderFolder::open(const std::string& case_folder) {
  auto folder = std::make_unique<HeaderFolder>();
  ASSIGN_OR_RETURN(folder->config_, read_json(case_folder + "/config.json"));
  ASSIGN_OR_RETURN(const Json checkpoint, read_json(case_folder + "/checkpoint.json"));
  for (const auto& [name, tensor] : checkpoint.at("tensors").items()) {
    folder->tensors_.push_back({name, tensor.at("dtype"), tensor.at("shape")});
  }
  folder->write_config(folder->config_);
  folder->write_tensors(folder->tensors_);
  return folder;
}

void HeaderFolder::write_config(const Json& config) const {
  std::ofstream(folder_.file("config.json")) << config.dump();
}

void HeaderFolder::write_tensors(const std::vector<HeaderTensor>& tensors) const {
  Json header = Json::object();
  int64_t end = 0;
  for (const HeaderTensor& tensor : tensors) {
    const HeaderDType& dtype = header_dtype(tensor.dtype);
    const int64_t begin = end;
    int64_t size = dtype.size;
    for (const int64_t extent : tensor.shape) size *= extent;
    end += size;
    header[tensor.name] = {
        {"dtype", dtype.name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  const std::string text = header.dump();
  const uint64_t text_size = text.size();
  const std::string path = folder_.file("model.safetensors");
  {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&text_size), sizeof text_size);
    file << text;
  }
  std::filesystem::resize_file(path, sizeof text_size + text_size + static_cast<uint64_t>(end));
}

}  // namespace atom
