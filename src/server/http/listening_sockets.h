// Sockets that listen on what HttpServerOptions names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace atom::server {

// Owns non-blocking descriptors, and removes the file of a Unix socket when it goes.
class ListeningSockets {
 public:
  // Every address of `host`, all on the same port; 0 picks a free one.
  static Result<ListeningSockets> open_tcp(const std::string& host, uint16_t port);
  // A socket file that nobody answers on is replaced; anything else in its place is an error.
  static Result<ListeningSockets> open_unix(const std::string& path);

  ListeningSockets() = default;
  ~ListeningSockets();
  ListeningSockets(ListeningSockets&& other) noexcept;
  ListeningSockets& operator=(ListeningSockets&&) = delete;

  uint16_t port() const { return port_; }  // 0 for a Unix socket
  // The caller owns the descriptors from here on; the file stays this object's.
  std::vector<int> release_descriptors();

 private:
  std::vector<int> descriptors_;
  uint16_t port_ = 0;
  std::string unix_path_;
};

// "127.0.0.1:1234", "[::1]:1234" or "unix", from what accept() gave.
std::string describe_peer(const void* address);

}  // namespace atom::server
