#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cctype>

#include "base/file.h"

namespace atom::server {
namespace {

constexpr std::string_view kScheme = "bearer ";
constexpr size_t kMaxKeyFileSize = 1 << 20;

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(digest(key));
}

bool ApiKeys::accepts(std::string_view authorization) const {
  const std::string_view scheme = authorization.substr(0, kScheme.size());
  const bool is_bearer = std::ranges::equal(
      scheme, kScheme, [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
  if (!is_bearer) return false;
  const Digest given = digest(trim(authorization.substr(kScheme.size())));
  bool found = false;
  for (const Digest& key : digests_) {
    found |= CRYPTO_memcmp(key.data(), given.data(), key.size()) == 0;
  }
  return found;
}

ApiKeys::Digest ApiKeys::digest(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

Result<std::vector<std::string>> read_api_key_file(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxKeyFileSize));
  std::vector<std::string> keys;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trim(std::string_view(text).substr(begin, end - begin));
    if (!line.empty() && line.front() != '#') keys.emplace_back(line);
    begin = end + 1;
  }
  if (keys.empty()) return invalid_argument("{}: no API key in it (one a line)", path);
  return keys;
}

}  // namespace atom::server
