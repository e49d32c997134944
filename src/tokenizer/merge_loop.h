// The merge loop of byte-pair encoding: of all adjacent pairs that merge, the one of lowest rank,
// the leftmost of equals, is replaced by its result, until none is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "tokenizer/merge_table.h"

namespace atom {

// In place, from `symbols[begin]` to the end. O(n log n) for any text; leaves off anywhere once
// `cancelled`, when there is one, is true.
void merge_symbols(const MergeTable& table,
                   size_t begin,
                   std::vector<int32_t>* symbols,
                   const std::atomic<bool>* cancelled = nullptr);

// The same result by other means, for tests: by rounds and a heap, and straight from the
// definition.
void merge_symbols_long(const MergeTable& table, size_t begin, std::vector<int32_t>* symbols);
void merge_symbols_naive(const MergeTable& table, size_t begin, std::vector<int32_t>* symbols);

}  // namespace atom
