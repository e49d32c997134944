// Drafts without a model: where the last tokens of a sequence stood before, what followed them then
// is likely to follow again (prompt lookup). Pure host code, without state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace atom {

class NgramProposer {
 public:
  // Lengths of what has to be found again, 1 <= min_length <= max_length.
  NgramProposer(int32_t min_length, int32_t max_length);

  // What followed the latest of the longest repetitions of the end of `token_ids`, going round
  // where it reaches the end itself. `count` tokens, or none.
  std::vector<int32_t> propose(std::span<const int32_t> token_ids, int32_t count) const;

 private:
  const int64_t min_length_;
  const int64_t max_length_;
};

}  // namespace atom
