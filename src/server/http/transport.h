// Bytes over a non-blocking socket, plain or inside TLS. Does not own the descriptor. Used on the
// I/O thread, where SIGPIPE is blocked: OpenSSL writes without MSG_NOSIGNAL.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct ssl_st;
struct ssl_ctx_st;

namespace atom::server {

struct SslContextDeleter {
  void operator()(ssl_ctx_st* context) const;
};
using SslContext = std::unique_ptr<ssl_ctx_st, SslContextDeleter>;

// TLS 1.2 or newer, of 1.2 only what has forward secrecy and authenticated encryption, with the
// certificate chain and key of two PEM files, which errors name.
Result<SslContext> make_tls_context(const std::string& certificate_file,
                                    const std::string& key_file);

class Transport {
 public:
  enum class Outcome {
    kDone,        // all, or for reads something, was moved
    kWantsRead,   // again when the socket is readable
    kWantsWrite,  // again when the socket is writable
    kEnd,         // the peer has closed its side
    kError
  };

  // Plain when `context` is null.
  Transport(int fd, ssl_ctx_st* context);

  bool is_tls() const { return ssl_ != nullptr; }
  Outcome handshake();
  Outcome read(char* data, size_t capacity, size_t* size);
  // Writes `first` then `second`, gathered, as far as possible; `written` counts both.
  Outcome write(std::string_view first, std::string_view second, size_t* written);
  // Tells the peer that nothing more will be written.
  void shutdown_write();
  // The socket is to be closed with a reset instead of an orderly end.
  void set_reset_on_close();
  // Whether the peer has closed its side, seen past bytes not read yet.
  bool peer_has_closed() const;

 private:
  struct SslDeleter {
    void operator()(ssl_st* ssl) const;
  };

  Outcome ssl_outcome(int result);
  Outcome write_plain(std::string_view first, std::string_view second, size_t* written);
  Outcome write_tls(std::string_view data, size_t* written);

  const int fd_;
  bool failed_ = false;  // the TLS connection cannot be used, not even to say goodbye
  std::unique_ptr<ssl_st, SslDeleter> ssl_;
};

}  // namespace atom::server
