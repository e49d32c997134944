// The HttpExchange that connections hand out, and the queue through which exchanges wake the I/O
// thread: once for however many of them have something to send.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "server/http/http_exchange.h"

namespace atom::server {

class Connection;
class Exchange;

// Filled from any thread, emptied on the I/O thread. Outlives the server as long as exchanges do.
class ReadyQueue {
 public:
  // `wake(context)` makes the I/O thread call take() soon; called until close().
  ReadyQueue(void (*wake)(void*), void* context) : wake_(wake), context_(context) {}

  // False when closed.
  bool push(std::shared_ptr<Exchange> exchange);
  // Swaps what is queued into `batch`, which is empty.
  void take(std::vector<std::shared_ptr<Exchange>>* batch);
  // On the I/O thread, when every exchange is over: from here on nothing is queued.
  void close();

 private:
  Mutex mutex_;
  void (*wake_)(void*) GUARDED_BY(mutex_);  // null once closed
  void* context_ GUARDED_BY(mutex_);
  bool woken_ GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Exchange>> ready_ GUARDED_BY(mutex_);
};

// What the handler answered.
struct Answer {
  HttpResponse response;
  std::shared_ptr<BodyStream> stream;  // null: `response` is all
};

class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(HttpRequest&& request, std::shared_ptr<ReadyQueue> queue, Connection* connection)
      : request_(std::move(request)), queue_(std::move(queue)), connection_(connection) {}

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override;
  void stream(HttpResponse head, std::shared_ptr<BodyStream> body) override;
  void fail(HttpResponse response) override;
  const std::atomic<bool>& gone() const override { return gone_; }
  void notify() override;
  void on_disconnect(std::function<void()> callback) override;

  // The rest is the connection's, on the I/O thread.

  // Null when the exchange is over.
  Connection* connection() const { return connection_; }
  // Between the two, notify() does not queue: the I/O thread looks by itself afterwards.
  void hold_wake_ups() { queued_.store(true); }
  void allow_wake_ups() { queued_.store(false); }
  std::optional<Answer> take_answer();
  // The response is written: forgets the disconnect callback.
  void complete();
  // The response cannot be written: runs the disconnect callback, now or when it is set.
  void disconnect();
  void run_late_callback();

 private:
  enum class State { kOpen, kComplete, kDisconnected };

  void set_answer(HttpResponse response, std::shared_ptr<BodyStream> body, bool is_failure);

  const HttpRequest request_;
  const std::shared_ptr<ReadyQueue> queue_;
  Connection* connection_;
  std::atomic<bool> queued_{false};
  std::atomic<bool> gone_{false};

  Mutex mutex_;
  State state_ GUARDED_BY(mutex_) = State::kOpen;
  bool answered_ GUARDED_BY(mutex_) = false;
  bool failed_ GUARDED_BY(mutex_) = false;
  std::optional<Answer> answer_ GUARDED_BY(mutex_);
  std::function<void()> disconnect_callback_ GUARDED_BY(mutex_);
};

}  // namespace atom::server
