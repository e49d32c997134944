#include "hub/testing/test_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>
#include <sstream>

#include "base/check.h"

namespace atom::hub {
namespace {

bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// The next request; `buffer` keeps what came too early. Nothing at the end of the connection.
std::optional<TestRequest> receive(int connection, std::string* buffer) {
  constexpr size_t kMaxRequestBytes = 65536;
  size_t end = 0;
  while ((end = buffer->find("\r\n\r\n")) == std::string::npos) {
    char chunk[4096];
    const ssize_t got = ::recv(connection, chunk, sizeof chunk, 0);
    if (got <= 0 || buffer->size() > kMaxRequestBytes) return std::nullopt;
    buffer->append(chunk, static_cast<size_t>(got));
  }
  std::istringstream text(buffer->substr(0, end));
  buffer->erase(0, end + 4);
  TestRequest request;
  std::string line;
  text >> request.method >> request.target;
  std::getline(text, line);
  while (std::getline(text, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::string value = line.substr(colon + 2);
    request.headers[name] = value.substr(0, value.find('\r'));
  }
  return request;
}

}  // namespace

std::string TestRequest::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

TestServer::TestServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(listener_ >= 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(::listen(listener_, 64) == 0);
  socklen_t size = sizeof address;
  CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  accept_thread_ = std::thread([this] { accept_loop(); });
}

TestServer::~TestServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  accept_thread_.join();
  ::close(listener_);
  std::vector<std::thread> threads;
  {
    const MutexLock lock(&mutex_);
    for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
    threads.swap(connection_threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

std::string TestServer::url() const {
  return "http://127.0.0.1:" + std::to_string(port_);
}

std::vector<TestRequest> TestServer::requests() const {
  const MutexLock lock(&mutex_);
  return requests_;
}

void TestServer::forget_requests() {
  const MutexLock lock(&mutex_);
  requests_.clear();
}

void TestServer::accept_loop() {
  while (!stopping_) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    const MutexLock lock(&mutex_);
    connections_.push_back(connection);
    connection_threads_.emplace_back([this, connection] { serve(connection); });
  }
}

void TestServer::serve(int connection) {
  std::string buffer;
  while (const std::optional<TestRequest> request = receive(connection, &buffer)) {
    {
      const MutexLock lock(&mutex_);
      requests_.push_back(*request);
    }
    if (!answer(connection, *request)) break;
  }
  const MutexLock lock(&mutex_);
  connections_.erase(std::find(connections_.begin(), connections_.end(), connection));
  ::close(connection);
}

// Whether the connection stays open.
bool TestServer::answer(int connection, const TestRequest& request) {
  const TestResponse response = handler_(request);
  sleep_for(response.delay_ms);
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " Answer\r\n";
  bool has_length = false;
  for (const std::string& header : response.headers) {
    head += header + "\r\n";
    has_length = has_length || header.starts_with("Content-Length:") ||
                 header.starts_with("Transfer-Encoding:") || header == "Connection: close";
  }
  if (!has_length) head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  if (!send_all(connection, head + "\r\n")) return false;
  if (request.method == "HEAD") return true;
  const std::string_view body = std::string_view(response.body).substr(0, response.cut_after);
  if (!send_all(connection, body)) return false;
  if (body.size() == response.body.size() && response.stall_ms == 0) {
    return std::find(response.headers.begin(), response.headers.end(), "Connection: close") ==
           response.headers.end();
  }
  sleep_for(response.stall_ms);
  return false;
}

void TestServer::sleep_for(int milliseconds) const {
  for (int slept = 0; slept < milliseconds && !stopping_; slept += 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace atom::hub
