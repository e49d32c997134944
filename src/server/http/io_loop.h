// What the connections of a server share: the io_context, their table with one deadline each, the
// queue of exchanges that have something to send, and the counts. On the I/O thread but for what
// says otherwise.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/http/exchange.h"
#include "server/http/http_server.h"
#include "server/http/transport.h"

namespace atom::server {

class IoLoop {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kNever = Clock::time_point::max();
  static constexpr size_t kScratchSize = 64 << 10;

  // `max_connections` is the option or what the limit of descriptors leaves. `tls` may be null.
  IoLoop(HttpServerOptions options,
         size_t max_connections,
         HttpServer::Handler handler,
         HttpServer::Screen screen,
         SslContext tls);
  ~IoLoop();

  boost::asio::io_context& context() { return context_; }
  const HttpServerOptions& options() const { return options_; }
  ssl_ctx_st* tls() const { return tls_.get(); }
  void set_tls(std::shared_ptr<ssl_ctx_st> tls) { tls_ = std::move(tls); }
  const std::shared_ptr<ReadyQueue>& ready() const { return ready_; }
  const HttpServer::Handler& handler() const { return handler_; }
  bool accepts_body(const HttpRequest& head) const { return !screen_ || screen_(head); }
  const std::shared_ptr<ByteBudget>& body_budget() const { return body_budget_; }
  char* scratch() { return scratch_.get(); }  // kScratchSize bytes, for the event being handled
  const std::string& date() const { return date_; }
  bool is_draining() const { return draining_; }

  // Returns some time after stop_serving(), which closes every connection.
  void run();
  // `on_tick` is called every tick.
  void start_ticking(std::function<void()> on_tick);
  void stop_serving();

  // Takes over an accepted descriptor.
  void add(int fd, std::string peer);
  void drain();

  // For connections.
  void set_deadline(size_t slot, Clock::time_point deadline) { slots_[slot].deadline = deadline; }
  void remove(size_t slot, bool is_refused);
  void exchange_opened();
  void exchange_closed();

  // From any thread.
  HttpServerStats stats() const;
  bool wait_until_idle(std::chrono::milliseconds timeout);

 private:
  struct Slot {
    std::shared_ptr<Connection> connection;
    Clock::time_point deadline;
  };

  static void wake(void* loop);
  void close_all();
  void handle_ready();
  void tick();

  const HttpServerOptions options_;
  const size_t max_connections_;
  const HttpServer::Handler handler_;
  const HttpServer::Screen screen_;
  std::shared_ptr<ssl_ctx_st> tls_;  // those that connections have hold it as well
  const std::shared_ptr<ByteBudget> body_budget_;
  const std::unique_ptr<char[]> scratch_;
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer timer_;
  std::chrono::milliseconds tick_interval_;
  std::function<void()> on_tick_;
  const std::shared_ptr<ReadyQueue> ready_;
  std::vector<std::shared_ptr<Exchange>> ready_batch_;
  std::vector<Slot> slots_;
  size_t num_refusing_ = 0;  // connections being told that there are too many
  bool draining_ = false;
  int64_t date_second_ = 0;
  std::string date_;

  std::atomic<size_t> num_connections_{0};
  std::atomic<size_t> num_exchanges_{0};
  std::atomic<uint64_t> num_accepted_{0};
  std::atomic<uint64_t> num_refused_{0};
  Mutex idle_mutex_;  // guards nothing: who waits for idle_ is not missed
  Condition idle_;
};

}  // namespace atom::server
