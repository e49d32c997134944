#include "spec_decode/ngram_proposer.h"

#include "base/check.h"

namespace atom {

NgramProposer::NgramProposer(int32_t min_length, int32_t max_length)
    : min_length_(min_length), max_length_(max_length) {
  CHECK(min_length >= 1);
  CHECK(max_length >= min_length);
}

std::vector<int32_t> NgramProposer::propose(std::span<const int32_t> token_ids,
                                            int32_t count) const {
  if (count == 0) return {};
  const int64_t size = std::ssize(token_ids);
  int64_t best_length = min_length_ - 1;
  int64_t best_end = 0;  // behind the repetition
  for (int64_t end = size - 1; end > best_length && best_length < max_length_; --end) {
    int64_t length = 0;
    while (length < max_length_ && length < end &&
           token_ids[end - 1 - length] == token_ids[size - 1 - length]) {
      ++length;
    }
    if (length > best_length) {
      best_length = length;
      best_end = end;
    }
  }
  std::vector<int32_t> drafts;
  if (best_length < min_length_) return drafts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = best_end + i;
    drafts.push_back(from < size ? token_ids[from] : drafts[from - size]);
  }
  return drafts;
}

}  // namespace atom
