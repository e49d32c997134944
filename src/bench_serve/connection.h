// A non-blocking connection to the server, plain or TLS, and what makes them. One thread. Writing
// to a closed TLS connection raises SIGPIPE: the program ignores it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench_serve/server_url.h"

struct ssl_ctx_st;
struct ssl_st;

namespace atom::bench_serve {

// What a step of a connection came to.
enum class IoState {
  kDone,       // of connecting: ready; of reading and writing: `size` bytes
  kWantRead,   // again when there is something to read
  kWantWrite,  // again when there is room to write
  kEnd,        // the other side has closed its end
  kFailed,     // see Connection::error()
};

struct IoResult {
  IoState state = IoState::kFailed;
  size_t size = 0;
};

class Connection {
 public:
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  // Goes on with connecting and the TLS handshake; not again after kDone.
  IoResult finish_connecting();
  IoResult read(char* buffer, size_t size);
  IoResult write(std::string_view bytes);
  // Bytes that were received and not read: the socket does not report these.
  bool has_pending() const;
  // What went wrong in the step that failed, for people.
  const std::string& error() const { return error_; }

 private:
  friend class Connector;
  Connection() = default;
  IoResult tls_result(int result, const char* what);

  int fd_ = -1;
  bool connected_ = false;
  ssl_st* tls_ = nullptr;
  std::string error_;
};

class Connector {
 public:
  // Resolves the host and keeps the first address that takes a connection within `timeout`
  // seconds.
  static Result<std::unique_ptr<Connector>> create(const ServerUrl& url,
                                                   bool verify_certificate,
                                                   double timeout);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Begins to connect.
  Result<std::unique_ptr<Connection>> connect() const;

  const ServerUrl& url() const { return url_; }

 private:
  Connector() = default;
  Status set_up_tls(bool verify_certificate);
  Status attach_tls(Connection* connection) const;

  ServerUrl url_;
  std::vector<char> address_;  // a sockaddr
  int family_ = 0;
  ssl_ctx_st* tls_context_ = nullptr;
};

}  // namespace atom::bench_serve
