#include "tokenizer/merge_loop.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace atom {

namespace {

constexpr uint32_t kNoRank = MergeTable::kNoRank;
// Up to here a scan for the lowest rank is faster than a heap.
constexpr size_t kShortSize = 32;

// Scans for the lowest rank each time.
void merge_short(const MergeTable& table, int32_t* ids, size_t* size) {
  uint32_t ranks[kShortSize];
  size_t n = *size;
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = table.rank(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = table.merge(ranks[best]).result;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
    }
    --n;
    if (best > 0) ranks[best - 1] = table.rank(ids[best - 1], ids[best]);
    if (best + 1 < n) ranks[best] = table.rank(ids[best], ids[best + 1]);
  }
  *size = n;
}

// Symbols or merges between two looks at whether there is still somebody who waits.
constexpr size_t kStepsPerLook = 1 << 16;

// Whether the work is to end before its step `i`; looks once in kStepsPerLook steps.
bool ends_before(size_t i, const std::atomic<bool>* cancelled) {
  return i % kStepsPerLook == 0 && cancelled != nullptr &&
         cancelled->load(std::memory_order_relaxed);
}

// Looks up ranks, remembering the pairs seen last: repetitive text has few different ones.
class RankMemo {
 public:
  explicit RankMemo(const MergeTable& table) : table_(table) {}
  uint32_t rank(int32_t left, int32_t right) {
    const uint32_t mixed =
        static_cast<uint32_t>(left) * 0x9E3779B1u ^ static_cast<uint32_t>(right) * 0x85EBCA77u;
    Entry& entry = entries_[mixed >> 26];
    if (entry.left != left || entry.right != right) {
      entry = {left, right, table_.rank(left, right)};
    }
    return entry.rank;
  }

 private:
  struct Entry {
    int32_t left = -1, right = -1;
    uint32_t rank = kNoRank;
  };
  const MergeTable& table_;
  Entry entries_[64];
};

// Rounds over the whole text, each merging all occurrences of the lowest rank, while every round
// shortens the text by an eighth or more: linear time. True when nothing is left to merge or nobody
// waits.
bool merge_rounds(const MergeTable& table,
                  int32_t* ids,
                  size_t* size,
                  const std::atomic<bool>* cancelled) {
  RankMemo memo(table);
  size_t n = *size;
  uint32_t best = kNoRank;
  for (size_t i = 0; i + 1 < n; ++i) {
    if (ends_before(i, cancelled)) return true;
    best = std::min(best, memo.rank(ids[i], ids[i + 1]));
  }
  while (best != kNoRank) {
    const MergeTable::Merge merge = table.merge(best);
    uint32_t next_best = kNoRank;
    size_t out = 0;
    for (size_t i = 0; i < n; ++out) {
      if (ends_before(out, cancelled)) return true;
      if (ids[i] == merge.left && i + 1 < n && ids[i + 1] == merge.right) {
        ids[out] = merge.result;
        i += 2;
      } else {
        ids[out] = ids[i++];
      }
      if (out > 0) next_best = std::min(next_best, memo.rank(ids[out - 1], ids[out]));
    }
    const bool productive = n - out >= n / 8;
    n = *size = out;
    best = next_best;
    if (!productive) return best == kNoRank;
  }
  return true;
}

// A heap of (rank, position) over a linked list of symbols; entries that no longer hold are
// recognized when they come up.
void merge_heap(const MergeTable& table,
                int32_t* ids,
                size_t* size,
                const std::atomic<bool>* cancelled) {
  struct Symbol {
    int32_t id;  // -1: merged into its left neighbor
    int32_t previous, next;
    uint32_t rank;  // of the pair with the next symbol
  };
  const auto n = static_cast<int32_t>(*size);
  std::vector<Symbol> symbols(n);
  std::vector<uint64_t> entries;
  const auto entry_of = [](uint32_t rank, int32_t position) {
    return uint64_t{rank} << 32 | static_cast<uint32_t>(position);
  };
  for (int32_t i = 0; i < n; ++i) {
    if (ends_before(i, cancelled)) return;
    const uint32_t rank = i + 1 < n ? table.rank(ids[i], ids[i + 1]) : kNoRank;
    symbols[i] = {ids[i], i - 1, i + 1, rank};
    if (rank != kNoRank) entries.push_back(entry_of(rank, i));
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(std::greater<>(),
                                                                            std::move(entries));
  const auto update = [&](int32_t position) {
    Symbol& symbol = symbols[position];
    symbol.rank = symbol.next < n ? table.rank(symbol.id, symbols[symbol.next].id) : kNoRank;
    if (symbol.rank != kNoRank) heap.push(entry_of(symbol.rank, position));
  };
  for (size_t i = 0; !heap.empty(); ++i) {
    if (ends_before(i, cancelled)) return;
    const auto position = static_cast<int32_t>(heap.top() & UINT32_MAX);
    const auto rank = static_cast<uint32_t>(heap.top() >> 32);
    heap.pop();
    Symbol& symbol = symbols[position];
    if (symbol.id < 0 || symbol.rank != rank) continue;
    Symbol& absorbed = symbols[symbol.next];
    symbol.id = table.merge(rank).result;
    symbol.next = absorbed.next;
    absorbed.id = -1;
    if (symbol.next < n) symbols[symbol.next].previous = position;
    update(position);
    if (symbol.previous >= 0) update(symbol.previous);
  }
  size_t out = 0;
  for (int32_t i = 0; i < n; i = symbols[i].next) ids[out++] = symbols[i].id;
  *size = out;
}

void merge_long(const MergeTable& table,
                int32_t* ids,
                size_t* size,
                const std::atomic<bool>* cancelled) {
  if (*size < 2) return;
  if (table.monotone() && merge_rounds(table, ids, size, cancelled)) return;
  merge_heap(table, ids, size, cancelled);
}

}  // namespace

void merge_symbols(const MergeTable& table,
                   size_t begin,
                   std::vector<int32_t>* symbols,
                   const std::atomic<bool>* cancelled) {
  size_t size = symbols->size() - begin;
  if (size <= kShortSize) {
    merge_short(table, symbols->data() + begin, &size);
  } else {
    merge_long(table, symbols->data() + begin, &size, cancelled);
  }
  symbols->resize(begin + size);
}

void merge_symbols_long(const MergeTable& table, size_t begin, std::vector<int32_t>* symbols) {
  size_t size = symbols->size() - begin;
  merge_long(table, symbols->data() + begin, &size, nullptr);
  symbols->resize(begin + size);
}

void merge_symbols_naive(const MergeTable& table, size_t begin, std::vector<int32_t>* symbols) {
  for (;;) {
    uint32_t best = kNoRank;
    size_t at = 0;
    for (size_t i = begin; i + 1 < symbols->size(); ++i) {
      const uint32_t rank = table.rank((*symbols)[i], (*symbols)[i + 1]);
      if (rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best == kNoRank) return;
    (*symbols)[at] = table.merge(best).result;
    symbols->erase(symbols->begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

}  // namespace atom
