// A blocking HTTP client for tests: sends exactly the bytes it is given. Waits are bounded; what
// does not come in time is a test failure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

struct ssl_st;

namespace atom::server {

struct TestResponse {
  int status = 0;                              // 0: no response came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  size_t num_chunks = 0;
  bool is_complete = false;  // the body ended as its framing says

  std::string header(const std::string& name) const;
};

class TestClient {
 public:
  static TestClient to_port(uint16_t port, const std::string& host = "127.0.0.1");
  static TestClient to_unix(const std::string& path);
  // Accepts any certificate. `tls12_suites`: offers TLS 1.2 with these alone; null: all there is.
  static TestClient with_tls(uint16_t port, const char* tls12_suites = nullptr);

  explicit TestClient(int fd) : fd_(fd) {}
  ~TestClient() { close(); }
  TestClient(TestClient&& other) noexcept;
  TestClient& operator=(TestClient&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  std::string certificate() const;  // of the server, its SHA-256

  // False when the connection is broken.
  bool send(std::string_view bytes);
  // Some bytes; empty at the end of the connection or when none come in time.
  std::string receive(size_t max_size = 65536);
  // `is_head`: the response has no body whatever its headers say.
  TestResponse read_response(bool is_head = false);
  // GET on a kept connection.
  TestResponse get(const std::string& path, const std::string& headers = {});
  std::string read_to_end();
  // Whether the server ends the connection, discarding what it sends before.
  bool sees_end(std::chrono::milliseconds timeout = std::chrono::seconds(10));

  void shutdown_write();
  void reset();  // closes with a TCP reset
  void close();

 private:
  bool wait_readable(std::chrono::milliseconds timeout);
  bool fill();
  std::string take_line();
  bool take(size_t size, std::string* out);

  int fd_ = -1;
  bool reached_end_ = false;
  std::string buffer_;
  struct SslDeleter {
    void operator()(ssl_st* ssl) const;
  };
  std::unique_ptr<ssl_st, SslDeleter> ssl_;
};

// The end of a request line, and all the headers that a request needs.
inline constexpr const char* kTestHost = " HTTP/1.1\r\nHost: test\r\n";

inline std::string get_request(const std::string& path) {
  return "GET " + path + kTestHost + "\r\n";
}

// An error of that status in JSON, after which the connection is closed.
void expect_refusal(const TestResponse& response, int status);

}  // namespace atom::server
