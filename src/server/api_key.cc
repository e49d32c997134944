#include "server/api_key.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/file.h"

namespace atom::server {
namespace {

constexpr size_t kMaxKeyFileSize = 1 << 20;
constexpr const char* kKnownFields =
    "name, scopes, requests_per_minute, tokens_per_minute, max_places, min_priority, max_priority";

std::vector<std::string_view> words_of(std::string_view line, std::string_view separators) {
  std::vector<std::string_view> words;
  for (size_t begin = line.find_first_not_of(separators); begin != line.npos;) {
    const size_t end = std::min(line.find_first_of(separators, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(separators, end);
  }
  return words;
}

template <typename Integer>
Status read_integer(std::string_view name, std::string_view text, int64_t min, Integer* target) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min) {
    return invalid_argument("{}: expected an integer of at least {}, found '{}'", name, min, text);
  }
  *target = value;
  return {};
}

Status read_scopes(std::string_view text, uint8_t* scopes) {
  *scopes = 0;
  for (const std::string_view word : words_of(text, ",")) {
    if (word == "inference") {
      *scopes |= static_cast<uint8_t>(KeyScope::kInference);
    } else if (word == "metrics") {
      *scopes |= static_cast<uint8_t>(KeyScope::kMetrics);
    } else if (word == "profiling") {
      *scopes |= static_cast<uint8_t>(KeyScope::kProfiling);
    } else {
      return invalid_argument("scopes: expected inference, metrics or profiling, found '{}'", word);
    }
  }
  return {};
}

Status read_field(std::string_view name, std::string_view value, ApiKey* key) {
  if (name == "name") {
    key->name = value;
    return {};
  }
  constexpr int64_t kAnyPriority = std::numeric_limits<int32_t>::min();
  if (name == "scopes") return read_scopes(value, &key->scopes);
  if (name == "requests_per_minute") return read_integer(name, value, 1, &key->requests_per_minute);
  if (name == "tokens_per_minute") return read_integer(name, value, 1, &key->tokens_per_minute);
  if (name == "max_places") return read_integer(name, value, 1, &key->max_places);
  if (name == "min_priority") return read_integer(name, value, kAnyPriority, &key->min_priority);
  if (name == "max_priority") return read_integer(name, value, kAnyPriority, &key->max_priority);
  return invalid_argument("unknown field '{}'; known are {}", name, kKnownFields);
}

Result<ApiKey> parse_line(const std::vector<std::string_view>& words) {
  ApiKey key;
  key.secret = words[0];
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string_view::npos) {
      return invalid_argument("expected FIELD=VALUE behind the key; fields are {}", kKnownFields);
    }
    RETURN_IF_ERROR(read_field(words[i].substr(0, equals), words[i].substr(equals + 1), &key));
  }
  if (key.min_priority > key.max_priority) {
    return invalid_argument("min_priority is over max_priority");
  }
  return key;
}

}  // namespace

Result<std::vector<ApiKey>> parse_api_keys(std::string_view text, const std::string& path) {
  std::vector<ApiKey> keys;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = words_of(text.substr(0, end), " \t\r");
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (words.empty() || words[0].front() == '#') continue;
    Result<ApiKey> key = parse_line(words);
    if (!key.ok()) return key.status().with_context(fmt::format("{}, line {}", path, number));
    if (key->name.empty()) key->name = fmt::format("line-{}", number);
    keys.push_back(std::move(key).value());
  }
  if (keys.empty()) return invalid_argument("{}: no API key in it (one a line)", path);
  return keys;
}

Result<std::vector<ApiKey>> read_api_key_file(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxKeyFileSize));
  return parse_api_keys(text, path);
}

}  // namespace atom::server
