// The merges of a byte-pair encoding: which adjacent ids become which id, in order of rank. Built
// while a tokenizer is loaded, immutable afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer/hash.h"

namespace atom {

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Merge {
    int32_t left, right, result;
  };

  enum class Ranks {
    kOwn,  // the rank of a merge is its index
    // Merges of one result, which follow each other, have one rank: that of the first.
    kOfResults,
  };

  MergeTable() : MergeTable(std::vector<Merge>()) {}
  // The later of two merges of one pair counts.
  explicit MergeTable(std::vector<Merge> merges, Ranks ranks = Ranks::kOwn);

  // kNoRank when the pair does not merge.
  uint32_t rank(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = mix_hash(key, seed_) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].rank;
      if (slots_[slot].rank == kNoRank) return kNoRank;
    }
  }
  // With ranks of results another one's sides may have been found.
  const Merge& merge(uint32_t rank) const { return merges_[rank]; }
  size_t size() const { return merges_.size(); }

  // Each merge has a rank of its own, and none makes a part of a merge of lower or equal rank. Then
  // merging in rounds, all occurrences of the lowest rank at a time, is the same as merging one by
  // one.
  bool monotone() const { return monotone_; }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t rank = kNoRank;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  void insert(uint64_t key, uint32_t rank);
  bool compute_monotone() const;

  std::vector<Merge> merges_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t mask_ = 0;
  uint64_t seed_ = 0;
  bool monotone_ = true;
};

}  // namespace atom
