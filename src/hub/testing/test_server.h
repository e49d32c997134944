// An HTTP server on 127.0.0.1 whose answers a test decides, cut, late and wrong ones included.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace atom::hub {

struct TestRequest {
  std::string method;
  std::string target;                          // path and query as sent
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const;
};

struct TestResponse {
  int status = 200;
  std::vector<std::string> headers;  // "Name: value"; Content-Length is added unless given
  std::string body;
  size_t cut_after = std::string::npos;  // closes after so many bytes of the body
  int stall_ms = 0;                      // silence after cut_after, before closing
  int delay_ms = 0;                      // before answering
};

class TestServer {
 public:
  using Handler = std::function<TestResponse(const TestRequest&)>;

  // The handler is called from one thread per connection.
  explicit TestServer(Handler handler);
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:PORT"
  std::vector<TestRequest> requests() const;
  void forget_requests();

 private:
  void accept_loop();
  void serve(int connection);
  bool answer(int connection, const TestRequest& request);
  void sleep_for(int milliseconds) const;

  const Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  std::vector<TestRequest> requests_ GUARDED_BY(mutex_);
  std::vector<int> connections_ GUARDED_BY(mutex_);  // open ones
  std::vector<std::thread> connection_threads_ GUARDED_BY(mutex_);
  std::thread accept_thread_;
};

}  // namespace atom::hub
