#include "hub/repo_listing.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "hub/checksum.h"
#include "hub/model_name.h"

namespace atom::hub {
namespace {

constexpr size_t kMaxEtagSize = 128;

Result<std::string> string_field(const Json& object, const char* name, std::string_view where) {
  const auto field = object.find(name);
  if (field != object.end() && field->is_string()) return field->get<std::string>();
  return invalid_argument("{}: the hub's answer has no string '{}'", where, name);
}

Result<uint64_t> size_field(const Json& object, std::string_view file, std::string_view where) {
  const auto field = object.find("size");
  if (field != object.end() && field->is_number_unsigned()) {
    const uint64_t size = field->get<uint64_t>();
    if (size <= kMaxFileSize) return size;
  }
  return invalid_argument("{}: the hub gives no size in [0, {}] for {}", where, kMaxFileSize, file);
}

Result<RepoFile> parse_file(const Json& entry, std::string_view name, std::string_view where) {
  RepoFile file;
  // Stored outside git (LFS, Xet): the blob that git has is a mere pointer.
  const auto large = entry.find("lfs");
  if (large != entry.end() && large->is_object()) {
    ASSIGN_OR_RETURN(file.etag, string_field(*large, "sha256", where));
    ASSIGN_OR_RETURN(file.size, size_field(*large, name, where));
  } else if (entry.contains("blobId") && entry.contains("size")) {
    ASSIGN_OR_RETURN(file.etag, string_field(entry, "blobId", where));
    ASSIGN_OR_RETURN(file.size, size_field(entry, name, where));
  } else {
    return file;
  }
  if (is_checksum(file.etag)) return file;
  return invalid_argument("{}: the hub gives '{}' as the sum of {}", where, file.etag, name);
}

}  // namespace

Result<RepoListing> parse_repo_listing(std::string_view text, std::string_view where) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, where));
  if (!json.is_object()) return invalid_argument("{}: the hub's answer is no object", where);
  RepoListing listing;
  ASSIGN_OR_RETURN(listing.commit, string_field(json, "sha", where));
  if (!is_commit(listing.commit)) {
    return invalid_argument("{}: the hub gives '{}' as the commit; expected 40 hexadecimal digits",
                            where,
                            listing.commit.substr(0, 100));
  }
  const auto siblings = json.find("siblings");
  if (siblings == json.end() || !siblings->is_array()) {
    return invalid_argument("{}: the hub's answer has no array 'siblings'", where);
  }
  for (const Json& entry : *siblings) {
    if (!entry.is_object()) return invalid_argument("{}: a sibling is no object", where);
    ASSIGN_OR_RETURN(const std::string name, string_field(entry, "rfilename", where));
    ASSIGN_OR_RETURN(listing.files[name], parse_file(entry, name, where));
  }
  return listing;
}

Result<std::string> clean_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  const bool valid = !etag.empty() && etag.size() <= kMaxEtagSize &&
                     std::all_of(etag.begin(), etag.end(), [](unsigned char c) {
                       return c < 0x80 && (std::isalnum(c) != 0 || c == '-');
                     });
  if (valid) return std::string(etag);
  return invalid_argument("the hub gives '{}' as ETag; expected letters, digits and dashes",
                          etag.substr(0, kMaxEtagSize));
}

}  // namespace atom::hub
