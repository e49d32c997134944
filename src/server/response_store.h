// Conversations of /v1/responses that may be continued by the id of their last answer. In memory
// and bounded: the longest unused go when there is no room. A conversation is only for who had it.
// Thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "server/caller.h"

namespace atom::server {

class ResponseStore {
 public:
  // `max_bytes`: of all conversations, with what it costs to keep each; 0 keeps none.
  explicit ResponseStore(size_t max_bytes) : max_bytes_(max_bytes) {}

  bool is_on() const { return max_bytes_ > 0; }

  // `messages`: the whole conversation as JSON, its last answer included. The caller's earlier one
  // of this id goes. One that is larger than the store is not kept.
  void put(const std::string& id, const Caller& caller, std::string messages);
  // Nothing when it is not there, or another caller's.
  std::optional<std::string> get(const std::string& id, const Caller& caller);

  size_t num_bytes() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<KeyUsage> owner;  // keeps the key its own
    std::string messages;
  };
  static constexpr size_t kEntryBytes = 512;  // beside the texts, at the most

  static std::string key_of(const std::string& id, const Caller& caller);
  static size_t bytes_of(const Entry& entry);
  void drop(std::list<Entry>::iterator entry) REQUIRES(mutex_);

  const size_t max_bytes_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_ GUARDED_BY(mutex_);
  size_t num_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace atom::server
