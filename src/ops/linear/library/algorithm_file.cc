#include "ops/linear/library/algorithm_file.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"

namespace atom::ops {
namespace {

constexpr int64_t kFormat = 1;
constexpr size_t kMaxKeySize = 256;
constexpr int kHexadecimal = 16;
constexpr JsonLimits kLimits = {.max_bytes = size_t{8} << 20,
                                .max_depth = 4,
                                .max_nodes = 2 * kMaxAlgorithms + 64,
                                .max_keys_per_object = kMaxAlgorithms};

std::string file_name_part(std::string text) {
  std::replace_if(
      text.begin(),
      text.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.'; },
      '-');
  return text;
}

bool parse_fingerprint(const std::string& text, uint64_t* fingerprint) {
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, *fingerprint, kHexadecimal);
  return error == std::errc() && parsed == end;
}

bool has_text(const Json& json, const char* name, const std::string& expected) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() && found->get<std::string>() == expected;
}

}  // namespace

std::string algorithm_file_path(const std::string& folder, const AlgorithmTable& table) {
  return fmt::format(
      "{}/linear-{}-{}.json", folder, file_name_part(table.card), file_name_part(table.library));
}

Status read_algorithms(const std::string& path, AlgorithmTable* table) {
  ASSIGN_OR_RETURN(const Json json, read_json_file(path, kLimits));
  const auto unusable = [&] {
    return invalid_argument(
        "{}: not a table of algorithms for {} and {}", path, table->card, table->library);
  };
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat ||
      !has_text(json, "card", table->card) || !has_text(json, "library", table->library) ||
      !json.contains("algorithms") || !json["algorithms"].is_object()) {
    return unusable();
  }
  std::map<std::string, uint64_t> fingerprints;
  for (const auto& [key, value] : json["algorithms"].items()) {
    uint64_t fingerprint = 0;
    if (key.size() > kMaxKeySize || !value.is_string() ||
        !parse_fingerprint(value.get<std::string>(), &fingerprint)) {
      return unusable();
    }
    fingerprints.emplace(key, fingerprint);
  }
  table->fingerprints = std::move(fingerprints);
  return {};
}

Status write_algorithms(const std::string& path, const AlgorithmTable& table) {
  Json algorithms = Json::object();
  for (const auto& [key, fingerprint] : table.fingerprints) {
    if (algorithms.size() == kMaxAlgorithms) break;
    algorithms[key] = fmt::format("{:016x}", fingerprint);
  }
  const Json json = {{"format", kFormat},
                     {"card", table.card},
                     {"library", table.library},
                     {"algorithms", std::move(algorithms)}};
  return replace_file(path, json_text(json, 1) + "\n");
}

}  // namespace atom::ops
