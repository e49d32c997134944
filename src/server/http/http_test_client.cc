#include "server/http/http_test_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace atom::server {
namespace {

constexpr std::chrono::milliseconds kPatience{10'000};

}  // namespace

std::string TestResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

void TestClient::SslDeleter::operator()(ssl_st* ssl) const {
  SSL_free(ssl);
}

TestClient TestClient::to_port(uint16_t port, const std::string& host) {
  const bool is_v6 = host.find(':') != host.npos;
  const int fd = ::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr);
  ::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr);
  const int result = is_v6 ? ::connect(fd, reinterpret_cast<sockaddr*>(&v6), sizeof(v6))
                           : ::connect(fd, reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
  if (result == 0) return TestClient(fd);
  ::close(fd);
  return TestClient(-1);
}

TestClient TestClient::to_unix(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    return TestClient(fd);
  }
  ::close(fd);
  return TestClient(-1);
}

TestClient TestClient::with_tls(uint16_t port, const char* tls12_suites) {
  TestClient client = to_port(port);
  if (!client.is_open()) return client;
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (tls12_suites != nullptr) {
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    CHECK(SSL_CTX_set_cipher_list(context, tls12_suites) == 1);
  }
  client.ssl_.reset(SSL_new(context));
  SSL_CTX_free(context);
  SSL_set_fd(client.ssl_.get(), client.fd_);
  if (SSL_connect(client.ssl_.get()) != 1) client.close();
  return client;
}

std::string TestClient::certificate() const {
  X509* certificate = SSL_get1_peer_certificate(ssl_.get());
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  CHECK(X509_digest(certificate, EVP_sha256(), digest, &size) == 1);
  X509_free(certificate);
  return {reinterpret_cast<const char*>(digest), size};
}

TestClient::TestClient(TestClient&& other) noexcept {
  *this = std::move(other);
}

TestClient& TestClient::operator=(TestClient&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(reached_end_, other.reached_end_);
  std::swap(buffer_, other.buffer_);
  std::swap(ssl_, other.ssl_);
  return *this;
}

bool TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ssl_ ? SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()))
                              : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

bool TestClient::wait_readable(std::chrono::milliseconds timeout) {
  if (ssl_ && SSL_pending(ssl_.get()) > 0) return true;
  pollfd poll{fd_, POLLIN, 0};
  return ::poll(&poll, 1, static_cast<int>(timeout.count())) == 1;
}

std::string TestClient::receive(size_t max_size) {
  if (!buffer_.empty()) {
    std::string bytes = buffer_.substr(0, max_size);
    buffer_.erase(0, bytes.size());
    return bytes;
  }
  if (fd_ < 0 || !wait_readable(kPatience)) return {};
  std::string bytes(max_size, '\0');
  const ssize_t size = ssl_ ? SSL_read(ssl_.get(), bytes.data(), static_cast<int>(max_size))
                            : ::recv(fd_, bytes.data(), max_size, 0);
  if (size <= 0) reached_end_ = true;
  bytes.resize(size <= 0 ? 0 : static_cast<size_t>(size));
  return bytes;
}

bool TestClient::fill() {
  std::string held = std::exchange(buffer_, {});
  const std::string more = receive();
  held += more;
  buffer_ = std::move(held);
  return !more.empty();
}

std::string TestClient::take_line() {
  size_t end;
  while ((end = buffer_.find("\r\n")) == buffer_.npos) {
    if (!fill()) return {};
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

bool TestClient::take(size_t size, std::string* out) {
  while (buffer_.size() < size) {
    if (!fill()) break;
  }
  const size_t taken = std::min(size, buffer_.size());
  out->append(buffer_, 0, taken);
  buffer_.erase(0, taken);
  return taken == size;
}

TestResponse TestClient::read_response(bool is_head) {
  TestResponse response;
  const std::string status_line = take_line();
  if (status_line.size() < 12 || status_line.compare(0, 9, "HTTP/1.1 ") != 0) return response;
  response.status = std::atoi(status_line.c_str() + 9);
  while (true) {
    const std::string line = take_line();
    if (line.empty()) break;
    const size_t colon = line.find(": ");
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    response.headers[name] = line.substr(colon + 2);
  }
  if (is_head || response.status / 100 == 1 || response.status == 204 || response.status == 304) {
    response.is_complete = true;
  } else if (response.headers.count("content-length") != 0) {
    const size_t size = std::strtoull(response.header("content-length").c_str(), nullptr, 10);
    response.is_complete = take(size, &response.body);
  } else if (response.header("transfer-encoding") == "chunked") {
    while (true) {
      const std::string line = take_line();
      if (line.empty()) break;
      const size_t size = std::strtoull(line.c_str(), nullptr, 16);
      std::string end;
      if (!take(size, &response.body) || !take(2, &end) || end != "\r\n") break;
      if (size == 0) {
        response.is_complete = true;
        break;
      }
      ++response.num_chunks;
    }
  } else {
    response.body = read_to_end();
    response.is_complete = true;
  }
  return response;
}

TestResponse TestClient::get(const std::string& path, const std::string& headers) {
  send("GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n");
  return read_response();
}

std::string TestClient::read_to_end() {
  std::string all = std::exchange(buffer_, {});
  while (true) {
    const std::string more = receive();
    if (more.empty()) return all;
    all += more;
  }
}

bool TestClient::sees_end(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  buffer_.clear();
  while (!reached_end_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !wait_readable(left)) return false;
    receive();
  }
  return true;
}

void TestClient::shutdown_write() {
  ::shutdown(fd_, SHUT_WR);
}

void TestClient::reset() {
  const linger option{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &option, sizeof(option));
  close();
}

void TestClient::close() {
  ssl_.reset();
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void expect_refusal(const TestResponse& response, int status) {
  EXPECT_EQ(response.status, status);
  EXPECT_EQ(response.header("content-type"), "application/json");
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_FALSE(response.header("x-request-id").empty());
  const Result<Json> json = parse_json(response.body, "error");
  ASSERT_TRUE(json.ok()) << response.body;
  EXPECT_EQ((*json)["error"]["type"], "invalid_request_error");
  EXPECT_TRUE((*json)["error"]["message"].is_string());
}

}  // namespace atom::server
