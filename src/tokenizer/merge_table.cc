#include "tokenizer/merge_table.h"

#include <algorithm>
#include <bit>

namespace atom {

MergeTable::MergeTable(std::vector<Merge> merges, Ranks ranks)
    : merges_(std::move(merges)), seed_(hash_seed()) {
  slots_.resize(std::bit_ceil(2 * merges_.size() + 2));
  mask_ = slots_.size() - 1;
  size_t rank = 0;
  for (size_t i = 0; i < merges_.size(); ++i) {
    const bool has_own = ranks == Ranks::kOwn || merges_[i].result != merges_[rank].result;
    if (has_own) rank = i;
    insert(key_of(merges_[i].left, merges_[i].right), static_cast<uint32_t>(rank));
  }
  monotone_ = ranks == Ranks::kOwn && compute_monotone();
}

void MergeTable::insert(uint64_t key, uint32_t rank) {
  size_t slot = mix_hash(key, seed_) & mask_;
  while (slots_[slot].rank != kNoRank && slots_[slot].key != key) slot = (slot + 1) & mask_;
  slots_[slot] = {key, rank};
}

bool MergeTable::compute_monotone() const {
  int32_t max_id = -1;
  for (const Merge& merge : merges_) {
    max_id = std::max({max_id, merge.left, merge.right, merge.result});
  }
  std::vector<uint32_t> first_use(max_id + 1, kNoRank);
  for (size_t i = merges_.size(); i-- > 0;) {
    const auto rank = static_cast<uint32_t>(i);
    if (this->rank(merges_[i].left, merges_[i].right) != rank) continue;  // overridden
    first_use[merges_[i].left] = first_use[merges_[i].right] = rank;
  }
  for (size_t i = 0; i < merges_.size(); ++i) {
    const auto rank = static_cast<uint32_t>(i);
    if (this->rank(merges_[i].left, merges_[i].right) != rank) continue;
    if (first_use[merges_[i].result] <= rank) return false;
  }
  return true;
}

}  // namespace atom
