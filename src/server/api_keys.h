// The keys that clients may present, and the callers they stand for. Compared in constant time,
// whatever their number and lengths. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "server/caller.h"

namespace atom::server {

class ApiKeys {
 public:
  // `salts`: what one caller caches helps no other.
  ApiKeys(const std::vector<ApiKey>& keys, bool salts);

  // From now on these. Who stays keeps what it has used of its quotas.
  void set(const std::vector<ApiKey>& keys);

  // `authorization`: the header "Bearer KEY". Null when it is none of them; where there are no
  // keys, everybody is the caller without a name.
  CallerPtr find(std::string_view authorization) const;
  // /metrics asks for a key once the scopes of one name it.
  bool protects_metrics() const { return table()->protects_metrics; }
  // Whether several callers share what they cache, so that each could see what others sent.
  bool shares_cache() const { return !salts_ && table()->callers.size() > 1; }

 private:
  using Digest = std::array<uint8_t, 32>;  // SHA-256
  struct Table {
    std::vector<Digest> digests;
    std::vector<CallerPtr> callers;
    bool protects_metrics = false;
  };

  static Digest digest(std::string_view text);
  std::shared_ptr<const Table> table() const;

  const bool salts_;
  const CallerPtr anonymous_;
  mutable Mutex mutex_;
  std::shared_ptr<const Table> table_ GUARDED_BY(mutex_);
};

}  // namespace atom::server
