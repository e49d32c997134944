#include "server/http/exchange.h"

#include <utility>

#include "base/check.h"

namespace atom::server {

bool ReadyQueue::push(std::shared_ptr<Exchange> exchange) {
  const MutexLock lock(&mutex_);
  if (wake_ == nullptr) return false;
  ready_.push_back(std::move(exchange));
  if (woken_) return true;
  woken_ = true;
  wake_(context_);
  return true;
}

void ReadyQueue::take(std::vector<std::shared_ptr<Exchange>>* batch) {
  const MutexLock lock(&mutex_);
  woken_ = false;
  ready_.swap(*batch);
}

void ReadyQueue::close() {
  std::vector<std::shared_ptr<Exchange>> dropped;
  {
    const MutexLock lock(&mutex_);
    wake_ = nullptr;
    ready_.swap(dropped);
  }
  for (const std::shared_ptr<Exchange>& exchange : dropped) {
    exchange->allow_wake_ups();
    exchange->run_late_callback();
  }
}

void Exchange::set_answer(HttpResponse response,
                          std::shared_ptr<BodyStream> body,
                          bool is_failure) {
  {
    const MutexLock lock(&mutex_);
    if (is_failure ? answered_ : failed_) return;
    CHECK(!answered_);
    answered_ = true;
    failed_ = is_failure;
    if (state_ != State::kOpen) return;
    answer_.emplace(Answer{std::move(response), std::move(body)});
  }
  notify();
}

void Exchange::respond(HttpResponse response) {
  set_answer(std::move(response), nullptr, false);
}

void Exchange::stream(HttpResponse head, std::shared_ptr<BodyStream> body) {
  CHECK(body != nullptr);
  CHECK(head.body.empty());
  set_answer(std::move(head), std::move(body), false);
}

void Exchange::fail(HttpResponse response) {
  set_answer(std::move(response), nullptr, true);
}

void Exchange::notify() {
  if (queued_.exchange(true) || queue_->push(shared_from_this())) return;
  // The server is gone. A callback that holds this exchange would keep both alive.
  std::function<void()> dropped;
  const MutexLock lock(&mutex_);
  dropped.swap(disconnect_callback_);
}

void Exchange::on_disconnect(std::function<void()> callback) {
  {
    const MutexLock lock(&mutex_);
    if (state_ == State::kComplete) return;
    disconnect_callback_ = std::move(callback);
    if (state_ == State::kOpen) return;
  }
  notify();
}

std::optional<Answer> Exchange::take_answer() {
  const MutexLock lock(&mutex_);
  return std::exchange(answer_, std::nullopt);
}

void Exchange::complete() {
  std::function<void()> dropped;  // what it holds is destroyed outside the lock
  connection_ = nullptr;
  const MutexLock lock(&mutex_);
  state_ = State::kComplete;
  dropped.swap(disconnect_callback_);
}

void Exchange::disconnect() {
  connection_ = nullptr;
  std::optional<Answer> dropped;
  {
    const MutexLock lock(&mutex_);
    state_ = State::kDisconnected;
    gone_ = true;
    dropped.swap(answer_);
  }
  run_late_callback();
}

void Exchange::run_late_callback() {
  std::function<void()> callback;
  {
    const MutexLock lock(&mutex_);
    if (state_ != State::kDisconnected) return;
    callback.swap(disconnect_callback_);
  }
  if (callback) callback();
}

}  // namespace atom::server
