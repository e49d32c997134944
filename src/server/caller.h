// Who sends a request: a key, and what it has used of its quotas. Thread-safe.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "server/admission.h"
#include "server/api_key.h"

namespace atom::server {

// Outlives the reloads of a key's limits.
class KeyUsage {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes a request from the quotas of `key`. Else nothing is taken, and what is returned is the
  // number of seconds after which it may be tried again.
  int try_request(const ApiKey& key, Clock::time_point now);
  void spend_tokens(const ApiKey& key, int64_t num_tokens, Clock::time_point now);
  Admission& places() { return places_; }

 private:
  // What is left of a quota, which fills up again within a minute; below 0 after an overdraft.
  struct Rate {
    void refill(int64_t per_minute, Clock::time_point now);
    // Seconds until there is at least 1.
    int wait(int64_t per_minute) const;

    double left = 0;
    Clock::time_point time{};
  };

  Admission places_{std::numeric_limits<int64_t>::max()};
  Mutex mutex_;
  Rate requests_ GUARDED_BY(mutex_);
  Rate tokens_ GUARDED_BY(mutex_);
};

class Caller {
 public:
  // `salt` keeps what it has cached from others; empty: it shares.
  Caller(ApiKey key, std::string salt, std::shared_ptr<KeyUsage> usage)
      : key_(std::move(key)), salt_(std::move(salt)), usage_(std::move(usage)) {}

  const ApiKey& key() const { return key_; }
  const std::shared_ptr<KeyUsage>& usage() const { return usage_; }
  int try_request() const { return usage_->try_request(key_, KeyUsage::Clock::now()); }
  void spend_tokens(int64_t num_tokens) const {
    usage_->spend_tokens(key_, num_tokens, KeyUsage::Clock::now());
  }
  int64_t max_places() const {
    return key_.max_places > 0 ? key_.max_places : std::numeric_limits<int64_t>::max();
  }
  // The salt of its prompts, of which `asked` is the part that the request names.
  std::string cache_salt(const std::string& asked) const {
    return salt_.empty() ? asked : salt_ + ":" + asked;
  }

 private:
  const ApiKey key_;
  const std::string salt_;
  const std::shared_ptr<KeyUsage> usage_;
};
using CallerPtr = std::shared_ptr<const Caller>;

// Places of the server and of the caller's share in it.
class Places {
 public:
  enum class Outcome { kTaken, kServerFull, kShareUsed };

  // Nothing changes unless kTaken.
  [[nodiscard]] Outcome resize(Admission* server, const Caller& caller, int64_t size) {
    Admission* share = &caller.usage()->places();
    const int64_t before = of_caller_.size();
    if (!of_caller_.resize(share, size, caller.max_places())) return Outcome::kShareUsed;
    if (of_server_.resize(server, size, server->limit())) return Outcome::kTaken;
    (void)of_caller_.resize(share, before, caller.max_places());
    return Outcome::kServerFull;
  }
  void give_back() {
    of_server_.give_back();
    of_caller_.give_back();
  }

 private:
  AdmissionTicket of_server_;
  AdmissionTicket of_caller_;
};

}  // namespace atom::server
