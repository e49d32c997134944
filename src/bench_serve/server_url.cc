#include "bench_serve/server_url.h"

#include <algorithm>
#include <charconv>

namespace atom::bench_serve {
namespace {

// No character of it can leave its place in a request line or a header.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

Result<ServerUrl> ServerUrl::parse(std::string_view text) {
  const Status wrong = invalid_argument(
      "'{}' is no address of a server; expected http://HOST:PORT, https://HOST or unix:/PATH",
      text.substr(0, 200));
  ServerUrl url;
  if (text.starts_with("unix:")) {
    std::string_view path = text.substr(5);
    if (path.starts_with("//")) path.remove_prefix(2);
    if (path.size() < 2 || path[0] != '/' || path.find('\0') != std::string_view::npos) {
      return wrong;
    }
    url.unix_path = path;
    url.authority = "localhost";
    return url;
  }
  if (!is_plain(text)) return wrong;
  std::string_view rest = text;
  if (const size_t scheme = rest.find("://"); scheme != std::string_view::npos) {
    url.tls = rest.substr(0, scheme) == "https";
    if (!url.tls && rest.substr(0, scheme) != "http") return wrong;
    rest.remove_prefix(scheme + 3);
  }
  if (rest.find_first_of("?#@") != std::string_view::npos) return wrong;
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return wrong;
    url.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
    if (url.host.find(':') == std::string::npos) return wrong;
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (url.host.empty() || url.host.size() > 255) return wrong;
  url.port = url.tls ? 443 : 80;
  if (!port.empty()) {
    const char* end = port.data() + port.size();
    const auto [stop, error] = std::from_chars(port.data() + 1, end, url.port);
    if (port[0] != ':' || error != std::errc() || stop != end || url.port == 0) return wrong;
  }
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  url.base_path = path;
  url.authority = authority;
  return url;
}

}  // namespace atom::bench_serve
