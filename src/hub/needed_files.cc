#include "hub/needed_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"

namespace atom::hub {
namespace {

constexpr size_t kMaxFiles = 4096;
constexpr size_t kMaxNameSize = 200;

bool is_weights_name(std::string_view name) {
  return name.size() <= kMaxNameSize && name.ends_with(".safetensors") &&
         name.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
             "._-") == std::string_view::npos &&
         name.front() != '.';
}

}  // namespace

const std::vector<std::string>& small_files() {
  static const std::vector<std::string> kFiles = {kConfigFile,
                                                  "generation_config.json",
                                                  "tokenizer.json",
                                                  "tokenizer_config.json",
                                                  "tokenizer.model",
                                                  "tiktoken.model",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "chat_template.jinja",
                                                  "chat_template.json",
                                                  "additional_chat_templates/default.jinja",
                                                  "additional_chat_templates/tool_use.jinja"};
  return kFiles;
}

Result<std::vector<std::string>> files_of_index(std::string_view text, std::string_view where) {
  JsonLimits limits;
  limits.max_bytes = kMaxIndexBytes;
  limits.max_depth = 8;
  limits.max_keys_per_object = 1'000'000;
  ASSIGN_OR_RETURN(const Json json, parse_json(text, where, limits));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object() || map->empty()) {
    return invalid_argument("{}: missing 'weight_map' (an object, the file of each tensor)", where);
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_weights_name(file.get_ref<const std::string&>())) {
      return invalid_argument(
          "{}: the file of tensor '{}' must be the name of a .safetensors file in the same folder",
          where,
          tensor.substr(0, kMaxNameSize));
    }
    files.insert(file.get<std::string>());
  }
  if (files.size() > kMaxFiles) {
    return invalid_argument(
        "{}: names {} files; expected at most {}", where, files.size(), kMaxFiles);
  }
  return std::vector<std::string>(files.begin(), files.end());
}

}  // namespace atom::hub
