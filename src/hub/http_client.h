// HTTP over libcurl: many requests at once in one thread. Follows redirects itself, so that the
// token goes to the hub and nowhere else, and a hub on https is never left for http. Responses are
// untrusted: headers are bounded here, bodies by who receives them. Belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom::hub {

struct HttpRequest {
  std::string url;
  bool head = false;   // headers only; not redirected to another host
  uint64_t begin = 0;  // bytes [begin, end) of the body; all of it when both are 0
  uint64_t end = 0;
  bool has_range() const { return end > begin; }
};

// Status and headers of the response that ended the redirects.
struct HttpReply {
  int status = 0;                              // 0: none came
  std::string url;                             // that answered
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const;  // empty: not there
};

// Where the body of a successful response goes. An error ends the request with it.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  virtual Status on_headers(const HttpReply& reply) = 0;
  virtual Status on_body(std::string_view bytes) = 0;
};

// How a request ended.
struct HttpOutcome {
  int64_t id = 0;
  HttpReply reply;
  Status status;           // ok: a complete response, whatever its status says
  bool transient = false;  // a transport error that may be gone the next time

  bool success() const { return status.ok() && reply.status / 100 == 2; }
};

struct HttpClientOptions {
  std::string endpoint;  // the hub: its scheme and host get the token
  std::string token;
  int stall_seconds = 30;
  int max_connections = 8;
};

class HttpClient {
 public:
  // An error when the endpoint is no http or https URL.
  static Result<std::unique_ptr<HttpClient>> create(HttpClientOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Begins a request; `receiver` outlives it. Its id comes back in its outcome.
  int64_t start(const HttpRequest& request, HttpReceiver* receiver);
  // Ends a request without an outcome.
  void cancel(int64_t id);

  // Works on all requests for at most `timeout_ms`, less when one ends; returns those that ended.
  std::vector<HttpOutcome> poll(int timeout_ms);

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether a hub at `endpoint` may send a request on to `url`, which is absolute.
Status check_redirect(const std::string& endpoint, const std::string& url);

// Percent-encodes what may not stand in a path; '/' stays when `keep_slashes`.
std::string encode_path(std::string_view path, bool keep_slashes);

}  // namespace atom::hub
