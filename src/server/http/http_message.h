// A request as it came over HTTP, and what answers it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/byte_budget.h"

namespace atom::server {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/v1/models", percent-decoded, without the query
  std::string query;   // after '?', as sent
  HttpHeaders headers;
  std::string body;
  ByteShare body_share;  // of the server's budget; holds the body's capacity
  std::string id;        // X-Request-Id if the client's is sane, else made here; sent back
  std::string peer;      // "127.0.0.1:1234"

  // The first header of that name, in any case; empty when there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string_view content_type = "application/json";  // of a constant; empty: none is sent
  HttpHeaders headers = {};                            // besides those the server sets itself
  std::string body = {};
};

}  // namespace atom::server
