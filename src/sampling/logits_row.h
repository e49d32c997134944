// A row of logits after one pass over it, and the best tokens of it without a sort. Tokens are
// ranked by logit, the lower id first on a tie; that order is total, so every selection is
// deterministic. -inf means "never" and is not ranked.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace atom {

// A token and its logit in one number; a larger key is a better token.
using RankKey = uint64_t;

inline float key_logit(RankKey key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

inline int32_t key_token_id(RankKey key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// Memory that one thread reuses from row to row.
struct RowScratch {
  std::vector<float> block_max;
  std::vector<float> bounds;
  std::vector<RankKey> keys;
  std::vector<float> edited;  // a copy of the row, for a caller that needs it before and after
};

enum class RowFault {
  kNone,
  kNotANumber,   // NaN or +inf among the logits
  kNoCandidate,  // every logit is -inf
};

struct LogitsRow {
  const float* logits = nullptr;     // [vocab_size]
  const float* block_max = nullptr;  // [ceil(vocab_size / kRowBlock)], in the scratch
  int64_t vocab_size = 0;
  float max = 0;  // finite when there is no fault
  RowFault fault = RowFault::kNone;
};

// The row is good until the logits change or the scratch is scanned into again.
LogitsRow scan_row(const float* logits, int64_t vocab_size, RowScratch& scratch);

// The lowest id that has the largest logit. The row has no fault.
int32_t best_token(const LogitsRow& row);

constexpr float kLowestLogit = std::numeric_limits<float>::lowest();

// The keys of all tokens with logit >= lowest, in id order; in scratch.keys.
std::span<RankKey> tokens_from(const LogitsRow& row, float lowest, RowScratch& scratch);

// The k best tokens among those with logit >= lowest, or all of them when there are fewer. When
// there are k, the last is the worst of them; no order otherwise. k >= 1; in scratch.keys.
std::span<RankKey> best_tokens(const LogitsRow& row, int64_t k, float lowest, RowScratch& scratch);

}  // namespace atom
