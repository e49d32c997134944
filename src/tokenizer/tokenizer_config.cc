#include "tokenizer/tokenizer_config.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/vocabulary.h"

namespace atom {

namespace {

// A token is written as a string or as an object with "content"; nothing for null.
Result<std::optional<std::string>> token_content(const Json& token, const std::string& where) {
  if (token.is_null()) return std::optional<std::string>();
  if (token.is_string()) return std::optional(token.get<std::string>());
  ASSIGN_OR_RETURN(std::string content, required_string(token, "content", where));
  return std::optional(std::move(content));
}

bool is_token_name(std::string_view key) {
  return key.ends_with("_token") && key != "add_bos_token" && key != "add_eos_token";
}

// Named tokens, and the lists of further special ones. What is there already stays.
Status read_special_tokens(const Json& object, const std::string& where, TokenizerConfig* config) {
  for (const auto& [key, value] : object.items()) {
    const std::string field = where + ": " + key;
    if (is_token_name(key) && (value.is_string() || value.is_object())) {
      ASSIGN_OR_RETURN(auto content, token_content(value, field));
      if (content) config->special_tokens.emplace(key, *content);
    } else if (key == "additional_special_tokens" || key == "extra_special_tokens") {
      if (!value.is_array() && !value.is_object()) continue;
      for (const auto& [name, token] : value.items()) {
        ASSIGN_OR_RETURN(auto content, token_content(token, field));
        if (!content) continue;
        config->extra_special_tokens.push_back(*content);
        if (value.is_object()) config->special_tokens.emplace(name, *content);
      }
    }
  }
  return {};
}

Result<int32_t> parse_id(const std::string& text, const std::string& where) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 0 ||
      id >= kMaxVocabularySize) {
    return invalid_argument("{}: \"{}\" is not an id in [0, {})", where, text, kMaxVocabularySize);
  }
  return id;
}

Status read_added_tokens_decoder(const Json& table,
                                 const std::string& where,
                                 TokenizerConfig* config) {
  if (!table.is_object()) {
    return invalid_argument("{}: added_tokens_decoder must be an object of id: token", where);
  }
  for (const auto& [key, value] : table.items()) {
    const std::string field = where + ": added_tokens_decoder[\"" + key + "\"]";
    AddedToken token;
    ASSIGN_OR_RETURN(token.id, parse_id(key, field));
    ASSIGN_OR_RETURN(token.content, required_string(value, "content", field));
    ASSIGN_OR_RETURN(token.single_word, optional_bool(value, "single_word", false, field));
    ASSIGN_OR_RETURN(token.lstrip, optional_bool(value, "lstrip", false, field));
    ASSIGN_OR_RETURN(token.rstrip, optional_bool(value, "rstrip", false, field));
    ASSIGN_OR_RETURN(token.normalized, optional_bool(value, "normalized", false, field));
    ASSIGN_OR_RETURN(token.special, optional_bool(value, "special", true, field));
    config->added_tokens.push_back(std::move(token));
  }
  return {};
}

Status read_added_tokens_file(const Json& table,
                              const std::string& where,
                              TokenizerConfig* config) {
  for (const auto& [content, value] : table.items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= kMaxVocabularySize) {
      return invalid_argument(
          "{}: the id of \"{}\" must be in [0, {})", where, content, kMaxVocabularySize);
    }
    AddedToken token;
    token.id = value.get<int32_t>();
    token.content = content;
    token.normalized = true;
    config->added_tokens.push_back(std::move(token));
  }
  return {};
}

// The object in the file, or an empty one when there is no file.
Result<Json> read_object(const std::string& path) {
  if (!file_exists(path)) return Json(Json::object());
  ASSIGN_OR_RETURN(Json json, read_json_file(path));
  if (!json.is_object()) return invalid_argument("{}: must be a JSON object", path);
  return json;
}

}  // namespace

Result<TokenizerConfig> parse_tokenizer_config(const Json& json, const std::string& where) {
  if (!json.is_object()) return invalid_argument("{}: must be a JSON object", where);
  TokenizerConfig config;
  for (const auto& [key, target] : {std::pair("add_bos_token", &config.add_bos_token),
                                    std::pair("add_eos_token", &config.add_eos_token)}) {
    if (!json.contains(key) || json[key].is_null()) continue;
    ASSIGN_OR_RETURN(*target, optional_bool(json, key, false, where));
  }
  ASSIGN_OR_RETURN(config.legacy, optional_bool(json, "legacy", true, where));
  RETURN_IF_ERROR(read_special_tokens(json, where, &config));
  if (const auto it = json.find("added_tokens_decoder"); it != json.end() && !it->is_null()) {
    RETURN_IF_ERROR(read_added_tokens_decoder(*it, where, &config));
  }
  return config;
}

Result<TokenizerConfig> read_tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  ASSIGN_OR_RETURN(const Json json, read_object(path));
  ASSIGN_OR_RETURN(TokenizerConfig config, parse_tokenizer_config(json, path));
  const std::string map_path = folder + "/special_tokens_map.json";
  ASSIGN_OR_RETURN(const Json map, read_object(map_path));
  RETURN_IF_ERROR(read_special_tokens(map, map_path, &config));
  const std::string added_path = folder + "/added_tokens.json";
  ASSIGN_OR_RETURN(const Json added, read_object(added_path));
  RETURN_IF_ERROR(read_added_tokens_file(added, added_path, &config));
  return config;
}

}  // namespace atom
