#include "server/caller.h"

#include <algorithm>
#include <cmath>

namespace atom::server {

void KeyUsage::Rate::refill(int64_t per_minute, Clock::time_point now) {
  const auto full = static_cast<double>(per_minute);
  if (time == Clock::time_point()) {
    left = full;
  } else {
    const double minutes = std::chrono::duration<double, std::ratio<60>>(now - time).count();
    left = std::min(full, left + full * minutes);
  }
  time = now;
}

int KeyUsage::Rate::wait(int64_t per_minute) const {
  if (left >= 1) return 0;
  return static_cast<int>(std::ceil((1 - left) * 60 / static_cast<double>(per_minute)));
}

int KeyUsage::try_request(const ApiKey& key, Clock::time_point now) {
  if (key.requests_per_minute == 0 && key.tokens_per_minute == 0) return 0;
  const MutexLock lock(&mutex_);
  int wait = 0;
  if (key.requests_per_minute > 0) {
    requests_.refill(key.requests_per_minute, now);
    wait = requests_.wait(key.requests_per_minute);
  }
  if (key.tokens_per_minute > 0) {
    tokens_.refill(key.tokens_per_minute, now);
    wait = std::max(wait, tokens_.wait(key.tokens_per_minute));
  }
  if (wait == 0 && key.requests_per_minute > 0) requests_.left -= 1;
  return wait;
}

void KeyUsage::spend_tokens(const ApiKey& key, int64_t num_tokens, Clock::time_point now) {
  if (key.tokens_per_minute == 0) return;
  const MutexLock lock(&mutex_);
  tokens_.refill(key.tokens_per_minute, now);
  tokens_.left -= static_cast<double>(num_tokens);
}

}  // namespace atom::server
