#include "loader/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/file.h"
#include "base/json.h"

namespace atom {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{128} << 20;
constexpr size_t kMaxFiles = 4096;

bool is_plain_file_name(const std::string& name) {
  return name.size() > std::string_view(".safetensors").size() && name.size() <= 255 &&
         name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

// What a folder without a checkpoint holds instead, as the end of a message.
std::string describe_other_weights(const std::string& folder) {
  static const std::set<std::string> kWeights = {
      ".bin", ".gguf", ".pt", ".pth", ".safetensors", ".h5", ".msgpack", ".onnx"};
  std::error_code error;
  std::string found;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_weights = kWeights.contains(entry->path().extension().string());
    if (is_weights && (found.empty() || name < found)) found = name;
  }
  if (error) return "; the folder cannot be listed: " + error.message();
  if (found.empty()) return "; it holds no weights at all: is the download complete?";
  if (found.ends_with(".safetensors")) {
    return "; found " + found + ", which is no model in the Hugging Face layout";
  }
  return "; found " + found +
         ", which atom does not read: convert it, or download the model's safetensors files";
}

// Tensors of the index that no header has, and the other way round.
Status check_against_index(const std::vector<std::pair<std::string, std::string>>& weight_map,
                           const std::vector<CheckpointFile>& files,
                           const std::vector<CheckpointTensor>& tensors,
                           const std::string& index_path) {
  std::unordered_map<std::string_view, std::string> file_of_tensor;
  for (const CheckpointTensor& tensor : tensors) {
    const std::string file = std::filesystem::path(files[tensor.file].path).filename().string();
    file_of_tensor.emplace(tensor.info.name, file);
  }
  for (const auto& [name, file] : weight_map) {
    const auto it = file_of_tensor.find(name);
    if (it == file_of_tensor.end()) {
      return invalid_argument(
          "{}: tensor '{}' is not in {}, which should hold it", index_path, name, file);
    }
    if (it->second != file) {
      return invalid_argument(
          "{}: tensor '{}' is in {}, not in {}", index_path, name, it->second, file);
    }
    file_of_tensor.erase(it);
  }
  if (!file_of_tensor.empty()) {
    const auto& [name, file] = *file_of_tensor.begin();
    return invalid_argument("{}: tensor '{}' of {} is not in the index ({} such tensors)",
                            index_path,
                            name,
                            file,
                            file_of_tensor.size());
  }
  return {};
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> parse_checkpoint_index(
    std::string_view text, std::string_view where) {
  JsonLimits limits;
  limits.max_bytes = kMaxIndexBytes;
  limits.max_depth = 8;
  limits.max_keys_per_object = 1'000'000;
  ASSIGN_OR_RETURN(const Json json, parse_json(text, where, limits));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object() || map->empty()) {
    return invalid_argument("{}: missing 'weight_map' (an object, the file of each tensor)", where);
  }
  std::vector<std::pair<std::string, std::string>> weight_map;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      return invalid_argument(
          "{}: the file of tensor '{}' must be the name of a .safetensors file in the same folder",
          where,
          name);
    }
    weight_map.emplace_back(name, file.get<std::string>());
  }
  return weight_map;
}

Status Checkpoint::add_file(const std::string& path) {
  CheckpointFile file{path, 0};
  ASSIGN_OR_RETURN(std::vector<TensorInfo> infos, read_safetensors_header(path, &file.size));
  const int index = static_cast<int>(files_.size());
  files_.push_back(std::move(file));
  for (TensorInfo& info : infos) tensors_.push_back({std::move(info), index});
  return {};
}

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return not_found("{}: no such folder", folder);
  }
  Checkpoint checkpoint;
  const std::string single_path = folder + "/" + kSingleFile;
  if (file_exists(single_path)) {
    RETURN_IF_ERROR(checkpoint.add_file(single_path));
    return checkpoint;
  }
  const std::string index_path = folder + "/" + kIndexFile;
  if (!file_exists(index_path)) {
    return not_found(
        "{}: no {} or {}{}", folder, kSingleFile, kIndexFile, describe_other_weights(folder));
  }
  ASSIGN_OR_RETURN(const std::string text, read_file(index_path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const auto weight_map, parse_checkpoint_index(text, index_path));
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  if (names.size() > kMaxFiles) {
    return invalid_argument(
        "{}: names {} files; expected at most {}", index_path, names.size(), kMaxFiles);
  }
  for (const std::string& name : names) {
    if (!file_exists(folder + "/" + name)) {
      return not_found(
          "{}: names {}, which is not in the folder: is the download complete?", index_path, name);
    }
    RETURN_IF_ERROR(checkpoint.add_file(folder + "/" + name));
  }
  std::map<std::string_view, int> seen;
  for (const CheckpointTensor& tensor : checkpoint.tensors_) {
    const auto [it, inserted] = seen.emplace(tensor.info.name, tensor.file);
    if (!inserted) {
      return invalid_argument("tensor '{}' is both in {} and in {}",
                              tensor.info.name,
                              checkpoint.files_[it->second].path,
                              checkpoint.files_[tensor.file].path);
    }
  }
  RETURN_IF_ERROR(
      check_against_index(weight_map, checkpoint.files_, checkpoint.tensors_, index_path));
  return checkpoint;
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& tensor) {
    return tensor.info.name == name;
  });
  return it == tensors_.end() ? nullptr : &*it;
}

uint64_t Checkpoint::num_bytes() const {
  uint64_t bytes = 0;
  for (const CheckpointTensor& tensor : tensors_) bytes += tensor.info.num_bytes;
  return bytes;
}

}  // namespace atom
