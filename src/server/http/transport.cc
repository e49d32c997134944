#include "server/http/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace atom::server {
namespace {

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK;
}

// The reason of OpenSSL's oldest error, which is the cause of the others.
std::string take_ssl_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (ERR_SYSTEM_ERROR(code)) return std::generic_category().message(ERR_GET_REASON(code));
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "unknown error";
}

// TLS 1.3 has no others.
constexpr const char* kTls12Suites =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

int choose_protocol(SSL*,
                    const unsigned char** chosen,
                    unsigned char* chosen_size,
                    const unsigned char* offered,
                    unsigned offered_size,
                    void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* match = nullptr;
  if (SSL_select_next_proto(&match, chosen_size, kOurs, sizeof(kOurs) - 1, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *chosen = match;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

void SslContextDeleter::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}
void Transport::SslDeleter::operator()(ssl_st* ssl) const {
  SSL_free(ssl);
}

Result<SslContext> make_tls_context(const std::string& certificate_file,
                                    const std::string& key_file) {
  ERR_clear_error();
  SslContext context(SSL_CTX_new(TLS_server_method()));
  if (!context) return internal_error("TLS: {}", take_ssl_reason());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  if (SSL_CTX_set_cipher_list(context.get(), kTls12Suites) != 1) {
    return internal_error("TLS: {}", take_ssl_reason());
  }
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                       SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  // A key under a passphrase is an error, not a question on the terminal.
  SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_file.c_str()) != 1) {
    return invalid_argument("TLS certificate file {}: {}", certificate_file, take_ssl_reason());
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return invalid_argument("TLS key file {} (for the certificate {}): {}",
                            key_file,
                            certificate_file,
                            take_ssl_reason());
  }
  if (SSL_CTX_check_private_key(context.get()) != 1) {
    return invalid_argument("TLS key file {} does not belong to the certificate {}: {}",
                            key_file,
                            certificate_file,
                            take_ssl_reason());
  }
  return context;
}

Transport::Transport(int fd, ssl_ctx_st* context) : fd_(fd) {
  if (context == nullptr) return;
  ssl_.reset(SSL_new(context));
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd) != 1) {
    failed_ = true;
    return;
  }
  SSL_set_accept_state(ssl_.get());
}

Transport::Outcome Transport::ssl_outcome(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return Outcome::kWantsRead;
    case SSL_ERROR_WANT_WRITE:
      return Outcome::kWantsWrite;
    case SSL_ERROR_ZERO_RETURN:
      return Outcome::kEnd;
    default:
      failed_ = true;
      ERR_clear_error();
      return Outcome::kError;
  }
}

Transport::Outcome Transport::handshake() {
  if (failed_) return Outcome::kError;
  ERR_clear_error();
  const int result = SSL_accept(ssl_.get());
  return result == 1 ? Outcome::kDone : ssl_outcome(result);
}

Transport::Outcome Transport::read(char* data, size_t capacity, size_t* size) {
  *size = 0;
  if (failed_) return Outcome::kError;
  if (ssl_ != nullptr) {
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_.get(), data, capacity, size);
    return result == 1 ? Outcome::kDone : ssl_outcome(result);
  }
  ssize_t result;
  do {
    result = ::recv(fd_, data, capacity, 0);
  } while (result < 0 && errno == EINTR);
  if (result < 0) return would_block() ? Outcome::kWantsRead : Outcome::kError;
  *size = static_cast<size_t>(result);
  return result == 0 ? Outcome::kEnd : Outcome::kDone;
}

Transport::Outcome Transport::write(std::string_view first,
                                    std::string_view second,
                                    size_t* written) {
  *written = 0;
  if (failed_) return Outcome::kError;
  if (ssl_ == nullptr) return write_plain(first, second, written);
  const Outcome outcome = write_tls(first, written);
  return outcome == Outcome::kDone ? write_tls(second, written) : outcome;
}

Transport::Outcome Transport::write_plain(std::string_view first,
                                          std::string_view second,
                                          size_t* written) {
  while (!first.empty() || !second.empty()) {
    iovec parts[2];
    size_t num_parts = 0;
    for (const std::string_view part : {first, second}) {
      if (!part.empty()) parts[num_parts++] = {const_cast<char*>(part.data()), part.size()};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = num_parts;
    const ssize_t result = num_parts == 1
                               ? ::send(fd_, parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL)
                               : ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (result < 0) {
      if (errno == EINTR) continue;
      return would_block() ? Outcome::kWantsWrite : Outcome::kError;
    }
    const auto size = static_cast<size_t>(result);
    *written += size;
    const size_t of_first = std::min(size, first.size());
    first.remove_prefix(of_first);
    second.remove_prefix(size - of_first);
  }
  return Outcome::kDone;
}

Transport::Outcome Transport::write_tls(std::string_view data, size_t* written) {
  while (!data.empty()) {
    ERR_clear_error();
    size_t size = 0;
    const int result = SSL_write_ex(ssl_.get(), data.data(), data.size(), &size);
    if (result != 1) return ssl_outcome(result);
    *written += size;
    data.remove_prefix(size);
  }
  return Outcome::kDone;
}

void Transport::shutdown_write() {
  if (ssl_ != nullptr && !failed_ && SSL_is_init_finished(ssl_.get())) {
    ERR_clear_error();
    if (SSL_shutdown(ssl_.get()) < 0) ERR_clear_error();
  }
  ::shutdown(fd_, SHUT_WR);
}

void Transport::set_reset_on_close() {
  const linger option{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &option, sizeof(option));
}

bool Transport::peer_has_closed() const {
  pollfd poll{fd_, POLLRDHUP, 0};
  return ::poll(&poll, 1, 0) == 1 && (poll.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace atom::server
