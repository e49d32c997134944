// How copies that share their experts agree on each step before it begins: one all_reduce() of the
// largest of four numbers, over a communicator of its own, which carries nothing else. It runs on a
// thread of this object, so that a core which waits for slower ones goes on to say that it lives.
//
// The thread of one core calls everything but fail().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace atom {

// What a core has to say of its next step; then the largest of what all have said.
struct StepSignals {
  int64_t has_prefill = 0;
  int64_t num_tokens = 0;
  int64_t has_unfinished = 0;  // some copy has something to compute: all of them do a step
  int64_t shutdown = 0;        // some copy is to end: all of them do, when none has work
};

class Lockstep {
 public:
  using Clock = std::chrono::steady_clock;

  // `group`: one rank for each copy; outlives this.
  explicit Lockstep(Communicator* group);
  // Ends the group for all copies if an exchange is on its way.
  ~Lockstep();

  // Begins an exchange; the one before has been waited for.
  void start(const StepSignals& own) EXCLUDES(mutex_);
  // What all have said, if they have before `deadline`; an error when the copies cannot go on
  // together. After one or the other the exchange is over.
  std::optional<Result<StepSignals>> wait_until(Clock::time_point deadline) EXCLUDES(mutex_);

  // Ends the group for all copies. From any thread.
  void fail(const Status& reason) { group_->fail(reason); }

 private:
  enum class State { kIdle, kAsked, kAnswered, kStopping };

  void loop() EXCLUDES(mutex_);

  Communicator* const group_;
  Mutex mutex_;
  Condition changed_;
  State state_ GUARDED_BY(mutex_) = State::kIdle;
  StepSignals signals_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace atom
