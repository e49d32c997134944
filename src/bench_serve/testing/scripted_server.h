// An HTTP server of a test, whose answers are scripts: a thread for each connection, which sends
// what the script says, when it says so, right or wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"

struct ssl_ctx_st;
struct ssl_st;

namespace atom::bench_serve {

struct ScriptedRequest {
  std::string method;
  std::string path;
  std::string head;  // all of it, as it came
  std::string body;
  size_t index = 0;       // of all requests that the server got
  size_t connection = 0;  // of all connections
};

// The connection that the request came on. Sending fails silently when the client is gone.
class ScriptedClient {
 public:
  void send(std::string_view bytes);
  // A whole response with its length.
  void respond(int status, std::string_view content_type, std::string_view body);
  void start_stream();                      // the head of a chunked event stream
  void send_chunk(std::string_view bytes);  // of the body
  void send_event(std::string_view data);   // as a chunk
  void end_stream();
  void sleep(double seconds);       // ends early with the server
  void close() { closed_ = true; }  // after the script

 private:
  friend class ScriptedServer;
  int fd_ = -1;
  ssl_st* tls_ = nullptr;
  bool closed_ = false;
  const std::atomic<bool>* stopping_ = nullptr;
};

class ScriptedServer {
 public:
  using Script = std::function<void(const ScriptedRequest&, ScriptedClient*)>;

  struct Options {
    std::string unix_path;  // listen there instead of on 127.0.0.1
    bool tls = false;       // with a certificate that signs itself
  };

  ScriptedServer(Script script, const Options& options);
  explicit ScriptedServer(Script script) : ScriptedServer(std::move(script), Options()) {}
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  uint16_t port() const { return port_; }
  std::string url() const;
  size_t num_requests() const { return num_requests_; }
  size_t num_connections() const { return num_connections_; }

  // A script that answers completions and chats with `num_tokens` tokens, `delay` seconds before
  // the first and `gap` between them, and what /v1/models asks.
  static Script tokens(int num_tokens, double delay, double gap);

 private:
  void accept_connections();
  void serve(int fd, size_t connection);
  bool serve_one(ScriptedClient* client, std::string* received, size_t connection);

  const Script script_;
  const Options options_;
  int listener_ = -1;
  uint16_t port_ = 0;
  ssl_ctx_st* tls_context_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> num_requests_{0};
  std::atomic<size_t> num_connections_{0};
  Mutex mutex_;
  std::vector<int> open_fds_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace atom::bench_serve
