// Remembers the ids of short pieces. Of fixed size: a newer piece displaces the older one in its
// slot, so that no text makes it grow. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/hash.h"

namespace atom {

class PieceCache {
 public:
  static constexpr size_t kMaxPieceSize = 26;
  static constexpr size_t kMaxIds = 7;

  PieceCache() : entries_(kNumEntries), seed_(hash_seed()) {}

  // The slot of a piece of at most kMaxPieceSize bytes.
  uint64_t hash(std::string_view piece) const { return hash_bytes(piece, seed_); }

  // Appends the ids and returns true when the piece is there.
  bool append(std::string_view piece, uint64_t hash, std::vector<int32_t>* ids) const {
    const Entry& entry = entries_[hash % kNumEntries];
    if (entry.hash != static_cast<uint32_t>(hash >> 32) || entry.piece_size != piece.size() ||
        std::memcmp(entry.piece, piece.data(), piece.size()) != 0) {
      return false;
    }
    if (entry.num_ids == 1) {
      ids->push_back(entry.ids[0]);
    } else {
      ids->insert(ids->end(), entry.ids, entry.ids + entry.num_ids);
    }
    return true;
  }

  void store(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Entry& entry = entries_[hash % kNumEntries];
    entry.hash = static_cast<uint32_t>(hash >> 32);
    entry.piece_size = static_cast<uint8_t>(piece.size());
    entry.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.piece, piece.data(), piece.size());
    std::copy(ids.begin(), ids.end(), entry.ids);
  }

 private:
  static constexpr size_t kNumEntries = 16384;  // 1 MiB
  struct alignas(64) Entry {
    uint32_t hash = 0;
    uint8_t piece_size = 0;  // 0: empty
    uint8_t num_ids = 0;
    char piece[kMaxPieceSize];
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_;
  uint64_t seed_;
};

}  // namespace atom
