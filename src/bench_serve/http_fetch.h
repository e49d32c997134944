// One request and its whole answer, waited for: what is asked before the measurement.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "bench_serve/connection.h"

namespace atom::bench_serve {

struct HttpReply {
  int status = 0;
  std::string body;
};

// The bytes of a request. `headers` are lines that end with CRLF.
std::string http_request(const ServerUrl& url,
                         std::string_view method,
                         std::string_view path,
                         std::string_view headers,
                         std::string_view body);

// `timeout` seconds for all of it. When `stop_fd` (or -1) becomes readable, kAborted.
Result<HttpReply> http_fetch(const Connector& connector,
                             std::string_view request,
                             double timeout,
                             int stop_fd);

}  // namespace atom::bench_serve
