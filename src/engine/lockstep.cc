#include "engine/lockstep.h"

#include <algorithm>
#include <array>

namespace atom {

Lockstep::Lockstep(Communicator* group) : group_(group), thread_([this] { loop(); }) {}

Lockstep::~Lockstep() {
  {
    const MutexLock lock(&mutex_);
    if (state_ == State::kAsked) group_->fail(unavailable("the engine is stopping"));
    state_ = State::kStopping;
  }
  changed_.notify_all();
  thread_.join();
}

void Lockstep::start(const StepSignals& own) {
  {
    const MutexLock lock(&mutex_);
    CHECK(state_ == State::kIdle);
    signals_ = own;
    state_ = State::kAsked;
  }
  changed_.notify_all();
}

std::optional<Result<StepSignals>> Lockstep::wait_until(Clock::time_point deadline) {
  MutexLock lock(&mutex_);
  while (state_ == State::kAsked) {
    if (changed_.wait_until(&lock, deadline) == std::cv_status::no_timeout) continue;
    if (state_ == State::kAsked) return std::nullopt;
  }
  state_ = State::kIdle;
  const Status status = group_->status();
  if (!status.ok()) return status;
  return signals_;
}

void Lockstep::loop() {
  ThreadPool pool(1);
  const Stream stream(&pool);
  // In memory that stays as long as others may read it.
  const Tensor values = Tensor::empty({4}, DType::kInt64);
  MutexLock lock(&mutex_);
  for (;;) {
    while (state_ != State::kAsked && state_ != State::kStopping) changed_.wait(&lock);
    if (state_ == State::kStopping) return;
    const StepSignals own = signals_;
    lock.unlock();
    int64_t* const data = values.data<int64_t>();
    const std::array<int64_t, 4> said = {
        own.has_prefill, own.num_tokens, own.has_unfinished, own.shutdown};
    std::copy(said.begin(), said.end(), data);
    group_->all_reduce(stream, values, ReduceOp::kMax);
    lock.lock();
    if (state_ == State::kStopping) return;
    signals_ = {data[0], data[1], data[2], data[3]};
    state_ = State::kAnswered;
    changed_.notify_all();
  }
}

}  // namespace atom
