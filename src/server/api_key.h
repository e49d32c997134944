// What a client's key allows, as the operator states it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom::server {

enum class KeyScope : uint8_t { kInference = 1, kMetrics = 2, kProfiling = 4 };

struct ApiKey {
  static constexpr uint8_t kAllScopes = 7;

  std::string secret;
  std::string name;             // for logs
  uint8_t scopes = kAllScopes;  // of KeyScope
  // 0: as much as the server has.
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and answers together
  int64_t max_places = 0;         // sequences running and waiting at a time
  int32_t min_priority = std::numeric_limits<int32_t>::min();
  int32_t max_priority = std::numeric_limits<int32_t>::max();

  bool may(KeyScope scope) const { return (scopes & static_cast<uint8_t>(scope)) != 0; }
};

// One key a line, and behind it any of name=NAME, scopes=inference,metrics,profiling,
// requests_per_minute=N, tokens_per_minute=N, max_places=N, min_priority=N and max_priority=N.
// Blank lines and lines that begin with '#' are left out. An error names `path` and line, not the
// key.
Result<std::vector<ApiKey>> parse_api_keys(std::string_view text, const std::string& path);
Result<std::vector<ApiKey>> read_api_key_file(const std::string& path);

}  // namespace atom::server
