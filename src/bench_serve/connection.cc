#include "bench_serve/connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/check.h"

namespace atom::bench_serve {
namespace {

std::string tls_errors() {
  std::string text;
  char buffer[256];
  while (const unsigned long code = ERR_get_error()) {
    ERR_error_string_n(code, buffer, sizeof buffer);
    if (!text.empty()) text += "; ";
    text += buffer;
  }
  return text;
}

bool is_address(const std::string& host) {
  unsigned char buffer[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), buffer) == 1 ||
         inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

// Waits for a connection to be made or refused.
Status try_connecting(Connection* connection, double timeout) {
  while (true) {
    const IoResult result = connection->finish_connecting();
    if (result.state == IoState::kDone) return {};
    if (result.state == IoState::kFailed || result.state == IoState::kEnd) {
      return unavailable("{}", connection->error());
    }
    const short events = result.state == IoState::kWantRead ? POLLIN : POLLOUT;
    pollfd waiting{connection->fd(), events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(timeout * 1000));
    if (ready == 0) return unavailable("no answer within {} s", timeout);
    if (ready < 0 && errno != EINTR) return unavailable("{}", std::strerror(errno));
  }
}

}  // namespace

Connection::~Connection() {
  if (tls_ != nullptr) {
    // Not to be waited for; the other side may be gone.
    ERR_clear_error();
    SSL_free(tls_);
  }
  if (fd_ >= 0) close(fd_);
}

IoResult Connection::tls_result(int result, const char* what) {
  if (result > 0) return {IoState::kDone, static_cast<size_t>(result)};
  const int saved_errno = errno;
  switch (SSL_get_error(tls_, result)) {
    case SSL_ERROR_WANT_READ:
      return {IoState::kWantRead, 0};
    case SSL_ERROR_WANT_WRITE:
      return {IoState::kWantWrite, 0};
    case SSL_ERROR_ZERO_RETURN:
      return {IoState::kEnd, 0};
    default:
      break;
  }
  error_ = tls_errors();
  const long verified = SSL_get_verify_result(tls_);
  if (verified != X509_V_OK) {
    error_ =
        std::string("the certificate is not valid: ") + X509_verify_cert_error_string(verified);
  } else if (error_.empty()) {
    error_ = saved_errno != 0 ? std::strerror(saved_errno) : "the connection was closed";
  }
  error_ = std::string(what) + ": " + error_;
  return {IoState::kFailed, 0};
}

IoResult Connection::finish_connecting() {
  if (!connected_) {
    pollfd waiting{fd_, POLLOUT, 0};
    if (poll(&waiting, 1, 0) == 0) return {IoState::kWantWrite, 0};
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) {
      error_ = std::strerror(error);
      return {IoState::kFailed, 0};
    }
    connected_ = true;
  }
  if (tls_ == nullptr) return {IoState::kDone, 0};
  ERR_clear_error();
  errno = 0;
  return tls_result(SSL_connect(tls_), "TLS handshake");
}

IoResult Connection::read(char* buffer, size_t size) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    errno = 0;
    const int limit = static_cast<int>(std::min<size_t>(size, INT_MAX));
    return tls_result(SSL_read(tls_, buffer, limit), "TLS");
  }
  while (true) {
    const ssize_t count = recv(fd_, buffer, size, 0);
    if (count > 0) return {IoState::kDone, static_cast<size_t>(count)};
    if (count == 0) return {IoState::kEnd, 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoState::kWantRead, 0};
    error_ = std::strerror(errno);
    return {IoState::kFailed, 0};
  }
}

IoResult Connection::write(std::string_view bytes) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    errno = 0;
    const int limit = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
    return tls_result(SSL_write(tls_, bytes.data(), limit), "TLS");
  }
  while (true) {
    const ssize_t count = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) return {IoState::kDone, static_cast<size_t>(count)};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoState::kWantWrite, 0};
    error_ = std::strerror(errno);
    return {IoState::kFailed, 0};
  }
}

bool Connection::has_pending() const {
  return tls_ != nullptr && SSL_pending(tls_) > 0;
}

Connector::~Connector() {
  SSL_CTX_free(tls_context_);
}

Status Connector::set_up_tls(bool verify_certificate) {
  tls_context_ = SSL_CTX_new(TLS_client_method());
  if (tls_context_ == nullptr) return unavailable("OpenSSL: {}", tls_errors());
  SSL_CTX_set_min_proto_version(tls_context_, TLS1_2_VERSION);
  SSL_CTX_set_mode(tls_context_,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (!verify_certificate) return {};
  SSL_CTX_set_verify(tls_context_, SSL_VERIFY_PEER, nullptr);
  if (SSL_CTX_set_default_verify_paths(tls_context_) == 1) return {};
  return unavailable("the system's certificates cannot be read: {}", tls_errors());
}

Status Connector::attach_tls(Connection* connection) const {
  connection->tls_ = SSL_new(tls_context_);
  if (connection->tls_ == nullptr || SSL_set_fd(connection->tls_, connection->fd_) != 1) {
    return unavailable("OpenSSL: {}", tls_errors());
  }
  constexpr unsigned char kProtocols[] = "\x08http/1.1";
  SSL_set_alpn_protos(connection->tls_, kProtocols, sizeof kProtocols - 1);
  if (is_address(url_.host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection->tls_), url_.host.c_str());
  } else {
    SSL_set_tlsext_host_name(connection->tls_, url_.host.c_str());
    SSL_set1_host(connection->tls_, url_.host.c_str());
  }
  return {};
}

Result<std::unique_ptr<Connection>> Connector::connect() const {
  std::unique_ptr<Connection> connection(new Connection);
  connection->fd_ = socket(family_, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (connection->fd_ < 0) {
    const bool too_many = errno == EMFILE || errno == ENFILE;
    return resource_exhausted("no socket: {}{}",
                              std::strerror(errno),
                              too_many ? "; raise ulimit -n or set --max-concurrency" : "");
  }
  if (family_ != AF_UNIX) {
    const int on = 1;
    setsockopt(connection->fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  const auto* address = reinterpret_cast<const sockaddr*>(address_.data());
  const auto size = static_cast<socklen_t>(address_.size());
  if (::connect(connection->fd_, address, size) != 0 && errno != EINPROGRESS) {
    // Unlike TCP, a Unix socket whose queue is full does not go on by itself.
    if (errno == EAGAIN) {
      return unavailable("the server's queue of connections is full; set --max-concurrency");
    }
    return unavailable("{}", std::strerror(errno));
  }
  if (tls_context_ != nullptr) RETURN_IF_ERROR(attach_tls(connection.get()));
  return connection;
}

Result<std::unique_ptr<Connector>> Connector::create(const ServerUrl& url,
                                                     bool verify_certificate,
                                                     double timeout) {
  std::unique_ptr<Connector> connector(new Connector);
  connector->url_ = url;
  if (url.tls) RETURN_IF_ERROR(connector->set_up_tls(verify_certificate));
  std::vector<std::pair<int, std::vector<char>>> addresses;
  const auto add = [&](int family, const void* address, size_t size) {
    const char* bytes = static_cast<const char*>(address);
    addresses.emplace_back(family, std::vector<char>(bytes, bytes + size));
  };
  if (!url.unix_path.empty()) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (url.unix_path.size() >= sizeof address.sun_path) {
      return invalid_argument("{}: a path of a Unix socket has at most {} bytes",
                              url.unix_path,
                              sizeof address.sun_path - 1);
    }
    std::memcpy(address.sun_path, url.unix_path.data(), url.unix_path.size());
    add(AF_UNIX, &address, sizeof address);
  } else {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error =
        getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
    if (error != 0) return not_found("{}: {}", url.host, gai_strerror(error));
    for (const addrinfo* i = found; i != nullptr; i = i->ai_next) {
      add(i->ai_family, i->ai_addr, i->ai_addrlen);
    }
    freeaddrinfo(found);
  }
  Status problem = unavailable("no address");
  for (auto& [family, address] : addresses) {
    connector->family_ = family;
    connector->address_ = std::move(address);
    Result<std::unique_ptr<Connection>> connection = connector->connect();
    problem = connection.ok() ? try_connecting(connection->get(), timeout) : connection.status();
    if (problem.ok()) return connector;
  }
  const std::string& where = url.unix_path.empty() ? url.authority : url.unix_path;
  return problem.with_context(fmt::format("cannot connect to {}", where));
}

}  // namespace atom::bench_serve
