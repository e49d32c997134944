// How many threads of a pool take part in its regions. A worker that has begun and then loses its
// core to somebody else holds up all the others for milliseconds, so that two threads beside one
// busy process are slower than one. When that costs more than they bring, the workers concerned
// stay away for a pause, which doubles as long as it keeps happening. Of one thread.
#pragma once

#include <algorithm>
#include <chrono>

namespace atom {

class ThreadLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // A pause is so many times as long as what made it necessary, so that tries cost a fortieth.
  static constexpr int kPausePerLoss = 40;
  static constexpr std::chrono::milliseconds kLastPause{2000};
  // What threads bring between two waits, in such waits, so that they may stay.
  static constexpr int kLeastGain = 2;

  explicit ThreadLimit(int num_threads) : num_threads_(num_threads), current_(num_threads) {}

  int current() const { return current_; }
  bool is_lowered() const { return current_ < num_threads_; }

  // All others waited for that many workers, which had no core, for `lost`. Threads that bring more
  // than they cost between such waits stay.
  void wait(int num_late, Duration lost, Time now) {
    const Duration brought = now - last_wait_ - lost;
    last_wait_ = now;
    if (brought < kLeastGain * lost) lower(num_late, lost, now);
  }

  // That many workers stay away: they did not run for `lost`.
  void lower(int num_late, Duration lost, Time now) {
    if (!is_lowered() && now - raised_at_ >= pause_) pause_ = Duration::zero();
    if (!is_lowered()) pause_ *= 2;
    pause_ = std::min<Duration>(std::max(pause_, kPausePerLoss * lost), kLastPause);
    current_ = std::max(1, current_ - num_late);
    until_ = now + pause_;
  }

  // All take part again once the pause is over; whether they do.
  bool raise(Time now) {
    if (now < until_) return false;
    current_ = num_threads_;
    raised_at_ = last_wait_ = now;
    return true;
  }

 private:
  const int num_threads_;
  int current_;
  Duration pause_{};
  Time until_{};
  Time raised_at_{};
  Time last_wait_{};
};

}  // namespace atom
