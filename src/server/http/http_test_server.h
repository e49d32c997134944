// A server for tests: some paths are answered at once, others are held for the test to answer.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/check.h"
#include "server/http/http_server.h"
#include "server/http/http_test_client.h"

namespace atom::server {

// Waits until `condition()`, looking often; false after ten seconds.
template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 10'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// A body that the test writes.
class TestStream final : public BodyStream {
 public:
  State take(std::string* out) override {
    std::lock_guard lock(mutex_);
    ++num_takes_;
    out->append(text_);
    text_.clear();
    return state_;
  }
  std::string_view keep_alive() const override { return ": ping\n\n"; }

  void append(std::string_view text) {
    std::lock_guard lock(mutex_);
    text_.append(text);
  }
  void end(State state = State::kEnd) {
    std::lock_guard lock(mutex_);
    state_ = state;
  }
  size_t num_takes() const {
    std::lock_guard lock(mutex_);
    return num_takes_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  State state_ = State::kMore;
  size_t num_takes_ = 0;
};

class TestServer {
 public:
  explicit TestServer(HttpServerOptions options = {}, HttpServer::Screen screen = nullptr) {
    options.port = 0;
    Result<std::unique_ptr<HttpServer>> started = HttpServer::start(
        options,
        [this](std::shared_ptr<HttpExchange> exchange) { handle(std::move(exchange)); },
        std::move(screen));
    if (!started.ok()) check_failed("started.ok()", started.status().message(), __FILE__, __LINE__);
    server_ = std::move(started).value();
  }
  ~TestServer() { stop(); }

  HttpServer* operator->() { return server_.get(); }
  uint16_t port() const { return server_->port(); }
  TestClient connect() const { return TestClient::to_port(port()); }
  void stop() { server_.reset(); }

  // The next request to a path that is not answered at once; null when none comes.
  std::shared_ptr<HttpExchange> next_held() {
    std::unique_lock lock(mutex_);
    const auto has_one = [this] { return !held_.empty(); };
    if (!arrived_.wait_for(lock, std::chrono::seconds(10), has_one)) return nullptr;
    std::shared_ptr<HttpExchange> exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }
  size_t num_requests() const { return num_requests_; }

 private:
  void handle(std::shared_ptr<HttpExchange> exchange) {
    ++num_requests_;
    const HttpRequest& request = exchange->request();
    if (request.path == "/hello") {
      exchange->respond({.body = R"({"hello":1})"});
    } else if (request.path == "/echo") {
      exchange->respond({.content_type = "text/plain", .body = request.body});
    } else if (request.path == "/nothing") {
      exchange->respond({.status = 204, .content_type = ""});
    } else if (request.path == "/large") {
      exchange->respond({.body = std::string(8 << 20, 'l')});
    } else if (request.path == "/inspect") {
      exchange->respond({.headers = {{"X-Method", request.method},
                                     {"X-Query", request.query},
                                     {"X-Peer", request.peer},
                                     {"X-Id", request.id},
                                     {"X-Bad", "a\r\nX-Injected: 1"},
                                     {"Content-Length", "7"}}});
    } else {
      std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      arrived_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<HttpExchange>> held_;
  std::atomic<size_t> num_requests_{0};
  std::unique_ptr<HttpServer> server_;
};

}  // namespace atom::server
