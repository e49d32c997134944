// Judges whether a core lives by what it says and when, and how often a dead one is started again.
// Plain logic without clocks or processes; of one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "config/engine_config.h"
#include "engine/messages.h"

namespace atom {

// Time counts only while the watcher itself runs: what passes between two ticks counts as kMaxTick
// at most. So neither a stopped or starved front end nor a slow callback is taken for a dead core.
class CoreWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // How often a core speaks, and the silence that is seen.
  static constexpr std::chrono::milliseconds kHeartbeat{20};
  static constexpr std::chrono::milliseconds kSilence{80};
  static constexpr std::chrono::milliseconds kMaxTick{50};

  enum class Verdict {
    kFine,
    kSilent,  // to be seen, not to be acted on
    kHung,    // silent for hang_timeout; while loading, for step_timeout
    kStuck,   // it speaks, but its step makes no progress for step_timeout
  };

  CoreWatch(const SupervisionConfig& limits, Clock::time_point now);

  void heard(const CoreResponse& response, Clock::time_point now);
  // After everything that has arrived was heard.
  Verdict tick(Clock::time_point now);

  // When the next tick may bring another verdict, as far as that is known now.
  std::chrono::milliseconds next_tick() const;
  Clock::time_point last_progress() const { return last_progress_; }
  Clock::duration silence() const { return silence_; }

 private:
  // What the next tick will count of the time since the last.
  Clock::duration uncounted(Clock::time_point now) const;
  void progress(Clock::time_point now);

  const Clock::duration hang_timeout_;
  const Clock::duration step_timeout_;
  bool loading_ = true;
  CoreHeartbeat last_;
  Clock::time_point last_tick_;
  Clock::time_point last_progress_;
  Clock::duration silence_{0};   // since anything was heard
  Clock::duration standing_{0};  // since there was progress
};

// Restarts follow at once on a death, then, while none of them serves anything, after 100 ms, twice
// as long each time, at most 5 s; until there were max_restarts of them in a row.
class RestartPolicy {
 public:
  explicit RestartPolicy(int32_t max_restarts) : max_restarts_(max_restarts) {}

  void served() { num_in_vain_ = 0; }
  // How long to wait before the next start; none to give up.
  std::optional<std::chrono::milliseconds> died();

 private:
  const int32_t max_restarts_;
  int32_t num_in_vain_ = 0;  // restarts since something was served
};

}  // namespace atom
