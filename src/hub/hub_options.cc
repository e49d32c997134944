#include "hub/hub_options.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "base/env.h"
#include "base/file.h"

namespace atom::hub {
namespace {

constexpr size_t kMaxTokenFileBytes = 4096;

// A token goes into a header: nothing but visible ASCII may be in it.
Result<std::string> checked_token(std::string token, const std::string& origin) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  token.erase(token.begin(), std::find_if_not(token.begin(), token.end(), is_space));
  token.erase(std::find_if_not(token.rbegin(), token.rend(), is_space).base(), token.end());
  for (const unsigned char c : token) {
    if (c > ' ' && c < 0x7f) continue;
    return invalid_argument("{}: the token has a character that no token has", origin);
  }
  return token;
}

Result<std::string> token_from_environment() {
  if (!env().hf_token.empty()) return checked_token(env().hf_token, "HF_TOKEN");
  const std::string& path = env().hf_token_path;
  if (path.empty() || !file_exists(path)) return std::string();
  ASSIGN_OR_RETURN(std::string text, read_file(path, kMaxTokenFileBytes));
  return checked_token(std::move(text), path);
}

}  // namespace

Result<HubOptions> options_from_environment() {
  HubOptions options;
  options.offline = env().hf_hub_offline;
  if (!env().hf_endpoint.empty()) options.endpoint = env().hf_endpoint;
  options.cache_folder = env().hf_hub_cache;
  if (!options.offline) {
    ASSIGN_OR_RETURN(options.token, token_from_environment());
  }
  options.available_bytes = available_bytes_of;
  return options;
}

Result<uint64_t> available_bytes_of(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) {
    return not_found("{}: cannot ask for free space: {}", folder, std::strerror(errno));
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace atom::hub
