// Strings with ids. Built while a tokenizer is loaded, immutable afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom {

// Ids of a vocabulary lie in [0, kMaxVocabularySize).
inline constexpr int32_t kMaxVocabularySize = 4 << 20;

class Vocabulary {
 public:
  Vocabulary();

  // An error names the entry when the id is out of range or either is taken.
  Status add(std::string_view content, int64_t id);
  void reserve(size_t num_entries, size_t num_bytes);

  // The id, or -1.
  int32_t find(std::string_view content) const;
  bool contains(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size() && entries_[id].size >= 0;
  }
  // Empty for an id without entry.
  std::string_view content(int32_t id) const;
  // Largest id + 1.
  int32_t size() const { return static_cast<int32_t>(entries_.size()); }
  size_t num_entries() const { return num_entries_; }
  size_t max_content_size() const { return max_content_size_; }

 private:
  struct Entry {
    uint32_t begin = 0;
    int32_t size = -1;
  };
  struct Slot {
    uint32_t tag = 0;
    int32_t id = -1;
  };
  void rehash(size_t num_slots);
  size_t find_slot(std::string_view content, uint64_t hash) const;

  std::string bytes_;
  std::vector<Entry> entries_;  // by id
  std::vector<Slot> slots_;     // open addressing, a power of two, at most half full
  size_t num_entries_ = 0;
  size_t max_content_size_ = 0;
  uint64_t seed_;
};

}  // namespace atom
