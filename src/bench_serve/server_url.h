// Where the server is. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace atom::bench_serve {

struct ServerUrl {
  bool tls = false;
  std::string host;  // a name or an address, without brackets; empty for a Unix socket
  uint16_t port = 0;
  std::string unix_path;  // of a Unix socket
  std::string base_path;  // in front of "/v1/...": empty, or "/prefix"
  std::string authority;  // the Host header: "host:port"

  // "http://HOST[:PORT][/PREFIX]", "https://...", "unix:/PATH", or "HOST[:PORT]" for http. IPv6
  // addresses are in brackets. A /v1 at the end is left out: it is part of every endpoint.
  static Result<ServerUrl> parse(std::string_view text);
};

}  // namespace atom::bench_serve
