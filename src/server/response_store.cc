#include "server/response_store.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace atom::server {

// Clients may choose the ids of their requests. A caller's usage tells who it is, whatever becomes
// of the limits of its key.
std::string ResponseStore::key_of(const std::string& id, const Caller& caller) {
  return fmt::format("{} {}", fmt::ptr(caller.usage().get()), id);
}

size_t ResponseStore::bytes_of(const Entry& entry) {
  return kEntryBytes + 2 * entry.key.size() + entry.messages.size();
}

void ResponseStore::put(const std::string& id, const Caller& caller, std::string messages) {
  messages.shrink_to_fit();
  Entry entry{key_of(id, caller), caller.usage(), std::move(messages)};
  const size_t num_bytes = bytes_of(entry);
  const MutexLock lock(&mutex_);
  if (num_bytes > max_bytes_) return;
  if (const auto found = by_key_.find(entry.key); found != by_key_.end()) drop(found->second);
  while (num_bytes > max_bytes_ - num_bytes_) drop(std::prev(entries_.end()));
  entries_.push_front(std::move(entry));
  by_key_.emplace(entries_.front().key, entries_.begin());
  num_bytes_ += num_bytes;
}

void ResponseStore::drop(std::list<Entry>::iterator entry) {
  num_bytes_ -= bytes_of(*entry);
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

std::optional<std::string> ResponseStore::get(const std::string& id, const Caller& caller) {
  const MutexLock lock(&mutex_);
  const auto found = by_key_.find(key_of(id, caller));
  if (found == by_key_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->messages;
}

size_t ResponseStore::num_bytes() const {
  const MutexLock lock(&mutex_);
  return num_bytes_;
}

}  // namespace atom::server
