// The keys a client may present. Compared in constant time, whatever their number and lengths.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom::server {

class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys);

  bool empty() const { return digests_.empty(); }
  // `authorization`: the header "Bearer KEY".
  bool accepts(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;  // SHA-256
  static Digest digest(std::string_view key);

  std::vector<Digest> digests_;
};

// One key a line; blank lines and lines that begin with '#' are left out.
Result<std::vector<std::string>> read_api_key_file(const std::string& path);

}  // namespace atom::server
