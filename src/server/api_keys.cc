#include "server/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cctype>

namespace atom::server {
namespace {

constexpr std::string_view kScheme = "bearer ";
constexpr size_t kSaltBytes = 16;

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<ApiKey>& keys, bool salts)
    : salts_(salts),
      anonymous_(std::make_shared<Caller>(ApiKey(), "", std::make_shared<KeyUsage>())),
      table_(std::make_shared<Table>()) {
  set(keys);
}

void ApiKeys::set(const std::vector<ApiKey>& keys) {
  const std::shared_ptr<const Table> before = table();
  const auto fresh = std::make_shared<Table>();
  for (const ApiKey& key : keys) {
    const Digest own = digest(key.secret);
    const auto known = std::find(before->digests.begin(), before->digests.end(), own);
    std::shared_ptr<KeyUsage> usage =
        known == before->digests.end()
            ? std::make_shared<KeyUsage>()
            : before->callers[static_cast<size_t>(known - before->digests.begin())]->usage();
    std::string salt;
    if (salts_) {
      const Digest of_salt = digest("atom cache salt " + key.secret);
      for (size_t i = 0; i < kSaltBytes; ++i) salt += fmt::format("{:02x}", of_salt[i]);
    }
    fresh->digests.push_back(own);
    fresh->callers.push_back(std::make_shared<Caller>(key, std::move(salt), std::move(usage)));
    const auto metrics_alone = static_cast<uint8_t>(KeyScope::kMetrics);
    fresh->protects_metrics |=
        key.scopes != ApiKey::kAllScopes && (key.scopes & metrics_alone) != 0;
  }
  const MutexLock lock(&mutex_);
  table_ = fresh;
}

std::shared_ptr<const ApiKeys::Table> ApiKeys::table() const {
  const MutexLock lock(&mutex_);
  return table_;
}

CallerPtr ApiKeys::find(std::string_view authorization) const {
  const std::shared_ptr<const Table> keys = table();
  if (keys->digests.empty()) return anonymous_;
  const std::string_view scheme = authorization.substr(0, kScheme.size());
  const bool is_bearer = std::ranges::equal(
      scheme, kScheme, [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
  if (!is_bearer) return nullptr;
  const Digest given = digest(trim(authorization.substr(kScheme.size())));
  size_t found = keys->digests.size();
  for (size_t i = 0; i < keys->digests.size(); ++i) {
    if (CRYPTO_memcmp(keys->digests[i].data(), given.data(), given.size()) == 0) found = i;
  }
  return found < keys->callers.size() ? keys->callers[found] : nullptr;
}

ApiKeys::Digest ApiKeys::digest(std::string_view text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

}  // namespace atom::server
