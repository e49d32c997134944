#include "engine/core_watch.h"

#include <algorithm>

namespace atom {
namespace {

using std::chrono::milliseconds;

CoreWatch::Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<CoreWatch::Clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

CoreWatch::CoreWatch(const SupervisionConfig& limits, Clock::time_point now)
    : hang_timeout_(to_duration(limits.hang_timeout)),
      step_timeout_(to_duration(limits.step_timeout)),
      last_tick_(now),
      last_progress_(now) {}

void CoreWatch::heard(const CoreResponse& response, Clock::time_point now) {
  silence_ = -uncounted(now);
  const auto* heartbeat = std::get_if<CoreHeartbeat>(&response);
  if (heartbeat == nullptr) {
    if (std::holds_alternative<CoreReady>(response)) loading_ = false;
    progress(now);
    return;
  }
  // Work that has only just been given out counts from the first heartbeat that tells of it.
  const bool idle = heartbeat->num_steps_in_flight == 0 || last_.num_steps_in_flight == 0;
  const bool moved = heartbeat->num_steps != last_.num_steps ||
                     heartbeat->runner_progress != last_.runner_progress;
  if (moved || (idle && heartbeat->num_ticks != last_.num_ticks)) progress(now);
  last_ = *heartbeat;
}

CoreWatch::Clock::duration CoreWatch::uncounted(Clock::time_point now) const {
  return std::min<Clock::duration>(now - last_tick_, kMaxTick);
}

void CoreWatch::progress(Clock::time_point now) {
  standing_ = -uncounted(now);
  last_progress_ = now;
}

CoreWatch::Verdict CoreWatch::tick(Clock::time_point now) {
  const Clock::duration passed = uncounted(now);
  last_tick_ = now;
  silence_ += passed;
  standing_ += passed;
  if (loading_) return silence_ > step_timeout_ ? Verdict::kHung : Verdict::kFine;
  if (silence_ > hang_timeout_) return Verdict::kHung;
  if (standing_ > step_timeout_) return Verdict::kStuck;
  return silence_ >= kSilence ? Verdict::kSilent : Verdict::kFine;
}

milliseconds CoreWatch::next_tick() const {
  if (loading_ || silence_ >= kSilence) return kHeartbeat;
  return std::min(kHeartbeat, std::chrono::ceil<milliseconds>(kSilence - silence_));
}

std::optional<milliseconds> RestartPolicy::died() {
  if (num_in_vain_ >= max_restarts_) return std::nullopt;
  const int32_t doublings = std::min(num_in_vain_ - 1, 6);
  ++num_in_vain_;
  if (doublings < 0) return milliseconds(0);
  return std::min(milliseconds(100 << doublings), milliseconds(5000));
}

}  // namespace atom
