#include "hub/model_name.h"

#include <algorithm>

namespace atom::hub {
namespace {

constexpr const char* kDefaultRevision = "main";
constexpr size_t kMaxPartSize = 96;  // the hub's own limit
constexpr size_t kMaxRevisionSize = 200;

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_name_character(char c) {
  return is_alphanumeric(c) || c == '_' || c == '.' || c == '-';
}

bool is_path_part(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), is_name_character) &&
         part.front() != '.' && part.find("..") == std::string_view::npos;
}

// "--" separates organization and name in the cache.
bool is_name_part(std::string_view part) {
  return is_path_part(part) && part.size() <= kMaxPartSize &&
         part.find("--") == std::string_view::npos;
}

}  // namespace

std::optional<ModelName> parse_model_name(std::string_view text) {
  ModelName result;
  const size_t at = text.find('@');
  if (at != std::string_view::npos) {
    result.revision = text.substr(at + 1);
    if (!is_revision(result.revision)) return std::nullopt;
    text = text.substr(0, at);
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view organization = text.substr(0, slash);
  const bool valid = is_name_part(organization) && is_alphanumeric(organization.front()) &&
                     is_name_part(text.substr(slash + 1));
  if (!valid) return std::nullopt;
  result.name = text;
  return result;
}

bool is_revision(std::string_view text) {
  if (text.empty() || text.size() > kMaxRevisionSize) return false;
  while (true) {
    const size_t slash = text.find('/');
    if (!is_path_part(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<ModelName> with_revision(ModelName name, const std::string& revision) {
  if (!revision.empty()) {
    if (!is_revision(revision)) {
      return invalid_argument("'{}' is no revision: expected a branch, a tag or a commit",
                              revision.substr(0, kMaxRevisionSize));
    }
    if (!name.revision.empty() && name.revision != revision) {
      return invalid_argument(
          "{} names one revision and --revision another: {}", name.to_string(), revision);
    }
    name.revision = revision;
  }
  if (name.revision.empty()) name.revision = kDefaultRevision;
  return name;
}

}  // namespace atom::hub
