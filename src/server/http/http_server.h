// The HTTP/1.1 listener: accepts connections, reads requests within limits, hands each to the
// handler and writes what it answers. One I/O thread serves all connections; nothing that takes
// longer than microseconds may run on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/http/http_exchange.h"

namespace atom::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;              // 0: any free one
  std::string unix_socket;           // path of a Unix socket to listen on instead
  std::string tls_certificate_file;  // PEM; with the key file: https
  std::string tls_key_file;

  size_t max_header_size = 16 << 10;      // bytes of request line and headers: 431 beyond
  size_t max_body_size = 32 << 20;        // bytes: 413 beyond
  size_t max_buffered_bytes = 512 << 20;  // of all bodies at a time: 429 beyond
  size_t max_connections = 65536;         // beyond, a new one gets 503 and is closed
  std::chrono::milliseconds header_timeout{10'000};       // from the first byte: 408 beyond
  std::chrono::milliseconds body_timeout{60'000};         // for the whole body: 408 beyond
  std::chrono::milliseconds idle_timeout{120'000};        // between requests of a connection
  std::chrono::milliseconds write_timeout{60'000};        // without a byte taken by the client
  std::chrono::milliseconds keep_alive_interval{15'000};  // of a stream that has nothing to say
};

// What the I/O thread counts. Connections open now, and totals since the start.
struct HttpServerStats {
  size_t num_connections = 0;
  size_t num_exchanges = 0;  // requests being answered
  uint64_t num_accepted = 0;
  uint64_t num_refused = 0;  // over max_connections
  size_t num_buffered = 0;   // bytes of bodies held
  size_t num_freed = 0;      // bytes of large bodies that were freed, since the start
};

class HttpServer {
 public:
  // Called on the I/O thread for every complete request; must not block.
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;
  // Called likewise when a request's head is there and a body is to come: whether it is worth
  // reading. Else the handler gets the request without it, and the connection is closed then.
  using Screen = std::function<bool(const HttpRequest& head)>;

  // Listens and serves when this returns. An error names address and cause, or the TLS file.
  static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options,
                                                   Handler handler,
                                                   Screen screen = nullptr);
  // Closes every connection, whatever it is doing.
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  virtual HttpServerStats stats() const = 0;

  // New connections get the certificate and key as the files of the options have them now. An error
  // leaves all as it was.
  virtual Status reload_tls() = 0;

  // No new connections, idle ones are closed, and responses say `Connection: close`. Requests that
  // still come on open connections reach the handler.
  virtual void drain() = 0;
  // Waits until no exchange is open; false after `timeout`.
  virtual bool wait_until_idle(std::chrono::milliseconds timeout) = 0;
};

}  // namespace atom::server
