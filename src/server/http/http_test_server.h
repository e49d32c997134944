// A server for tests: some paths are answered at once, others are held for the test to answer.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/mutex.h"
#include "server/http/http_server.h"
#include "server/http/http_test_client.h"

namespace atom::server {

// Waits until `condition()`, looking often; false after ten seconds.
template <typename Predicate>
bool eventually(Predicate condition) {
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
    const MutexLock lock(&mutex_);
    ++num_takes_;
    out->append(text_);
    text_.clear();
    return state_;
  }
  std::string_view keep_alive() const override { return ": ping\n\n"; }

  void append(std::string_view text) {
    const MutexLock lock(&mutex_);
    text_.append(text);
  }
  void end(State state = State::kEnd) {
    const MutexLock lock(&mutex_);
    state_ = state;
  }
  size_t num_takes() const {
    const MutexLock lock(&mutex_);
    return num_takes_;
  }

 private:
  mutable Mutex mutex_;
  std::string text_ GUARDED_BY(mutex_);
  State state_ GUARDED_BY(mutex_) = State::kMore;
  size_t num_takes_ GUARDED_BY(mutex_) = 0;
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
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    MutexLock lock(&mutex_);
    while (held_.empty()) {
      if (arrived_.wait_until(&lock, end) == std::cv_status::timeout && held_.empty()) {
        return nullptr;
      }
    }
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
      const MutexLock lock(&mutex_);
      held_.push_back(std::move(exchange));
      arrived_.notify_one();
    }
  }

  Mutex mutex_;
  Condition arrived_;
  std::deque<std::shared_ptr<HttpExchange>> held_ GUARDED_BY(mutex_);
  std::atomic<size_t> num_requests_{0};
  std::unique_ptr<HttpServer> server_;
};

}  // namespace atom::server
