#include "server/http/io_loop.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <ctime>
#include <new>
#include <utility>

#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/http_text.h"

namespace atom::server {
namespace {

using std::chrono::milliseconds;

// Deadlines are looked at this often: a timeout may be late by as much.
constexpr milliseconds kMaxTick{250};
constexpr milliseconds kMinTick{5};
// Beyond max_connections this many are told so; others are closed without a word.
constexpr size_t kMaxRefusing = 512;

milliseconds choose_tick(const HttpServerOptions& options) {
  const milliseconds shortest = std::min({options.header_timeout,
                                          options.body_timeout,
                                          options.idle_timeout,
                                          options.write_timeout,
                                          options.keep_alive_interval});
  return std::clamp(shortest / 4, kMinTick, kMaxTick);
}

}  // namespace

IoLoop::IoLoop(HttpServerOptions options,
               size_t max_connections,
               HttpServer::Handler handler,
               HttpServer::Screen screen,
               SslContext tls)
    : options_(std::move(options)),
      max_connections_(max_connections),
      handler_(std::move(handler)),
      screen_(std::move(screen)),
      tls_(std::move(tls)),
      body_budget_(std::make_shared<ByteBudget>(options_.max_buffered_bytes)),
      scratch_(std::make_unique<char[]>(kScratchSize)),
      context_(1),
      work_(context_.get_executor()),
      timer_(context_),
      tick_interval_(choose_tick(options_)),
      ready_(std::make_shared<ReadyQueue>(&IoLoop::wake, this)) {}

IoLoop::~IoLoop() {
  ready_->close();
}

void IoLoop::run() {
  for (;;) {
    try {
      context_.run();
      return;
    } catch (const std::bad_alloc&) {
      // A connection that it hit has been aborted; what else was to be done is done a tick later.
      log::error("out of memory on the I/O thread");
    }
  }
}

void IoLoop::stop_serving() {
  timer_.cancel();
  close_all();
  ready_->close();
  work_.reset();
}

void IoLoop::wake(void* loop) {
  auto* self = static_cast<IoLoop*>(loop);
  boost::asio::post(self->context_, [self] { self->handle_ready(); });
}

void IoLoop::handle_ready() {
  ready_->take(&ready_batch_);
  for (const std::shared_ptr<Exchange>& exchange : ready_batch_) {
    exchange->allow_wake_ups();
    if (exchange->connection() != nullptr) {
      const std::shared_ptr<Connection> connection = exchange->connection()->shared_from_this();
      connection->on_ready();
    } else {
      exchange->run_late_callback();
    }
  }
  ready_batch_.clear();
}

void IoLoop::start_ticking(std::function<void()> on_tick) {
  on_tick_ = std::move(on_tick);
  tick();
}

void IoLoop::tick() {
  const std::time_t second = std::time(nullptr);
  if (second != date_second_) {
    date_second_ = second;
    date_ = http_date(second);
  }
  on_tick_();
  const Clock::time_point now = Clock::now();
  // Downwards: a connection that closes is replaced by the last one, which has had its turn.
  for (size_t i = slots_.size(); i-- > 0;) {
    if (i >= slots_.size() || slots_[i].deadline > now) continue;
    const std::shared_ptr<Connection> connection = slots_[i].connection;
    connection->on_deadline(now);
  }
  timer_.expires_after(tick_interval_);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && work_.owns_work()) tick();
  });
}

void IoLoop::add(int fd, std::string peer) {
  const bool refused = slots_.size() - num_refusing_ >= max_connections_;
  (refused ? num_refused_ : num_accepted_).fetch_add(1, std::memory_order_relaxed);
  // Inside TLS the answer would have to wait for a handshake.
  if (refused && (num_refusing_ >= kMaxRefusing || tls_ != nullptr)) {
    ::close(fd);
    return;
  }
  auto connection = std::make_shared<Connection>(this, fd, std::move(peer), slots_.size());
  slots_.push_back({connection, kNever});
  if (refused) {
    ++num_refusing_;
  } else {
    num_connections_.store(slots_.size() - num_refusing_, std::memory_order_relaxed);
  }
  connection->start(refused);
}

void IoLoop::remove(size_t slot, bool is_refused) {
  if (slot + 1 != slots_.size()) {
    slots_[slot] = std::move(slots_.back());
    slots_[slot].connection->set_slot(slot);
  }
  slots_.pop_back();
  if (is_refused) --num_refusing_;
  num_connections_.store(slots_.size() - num_refusing_, std::memory_order_relaxed);
}

void IoLoop::drain() {
  draining_ = true;
  for (size_t i = slots_.size(); i-- > 0;) {
    if (i >= slots_.size()) continue;
    const std::shared_ptr<Connection> connection = slots_[i].connection;
    connection->on_drain();
  }
}

void IoLoop::close_all() {
  while (!slots_.empty()) {
    const std::shared_ptr<Connection> connection = slots_.back().connection;
    connection->abort();
  }
}

void IoLoop::exchange_opened() {
  num_exchanges_.fetch_add(1, std::memory_order_relaxed);
}

void IoLoop::exchange_closed() {
  if (num_exchanges_.fetch_sub(1) != 1) return;
  const MutexLock lock(&idle_mutex_);
  idle_.notify_all();
}

HttpServerStats IoLoop::stats() const {
  return {num_connections_.load(),
          num_exchanges_.load(),
          num_accepted_.load(),
          num_refused_.load(),
          body_budget_->used(),
          body_budget_->large_given_back()};
}

bool IoLoop::wait_until_idle(milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  MutexLock lock(&idle_mutex_);
  while (num_exchanges_.load() != 0) {
    if (idle_.wait_until(&lock, end) == std::cv_status::timeout) break;
  }
  return num_exchanges_.load() == 0;
}

}  // namespace atom::server
