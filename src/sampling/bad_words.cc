#include "sampling/bad_words.h"

#include <algorithm>

namespace atom {
namespace {

void sort_once(std::vector<int32_t>* ids) {
  std::ranges::sort(*ids);
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

}  // namespace

BadWords::BadWords(std::span<const std::vector<int32_t>> words, int64_t vocab_size) {
  for (const std::vector<int32_t>& word : words) {
    const bool may_come = std::ranges::all_of(
        word, [&](int32_t token_id) { return token_id >= 0 && token_id < vocab_size; });
    if (word.empty() || !may_come) continue;
    if (word.size() == 1) {
      always_.push_back(word[0]);
    } else {
      words_.push_back(word);
      max_beginning_ = std::max(max_beginning_, word.size() - 1);
    }
  }
  sort_once(&always_);
}

void BadWords::append(int32_t token_id) {
  if (words_.empty()) return;
  if (tail_.size() == max_beginning_) tail_.erase(tail_.begin());
  tail_.push_back(token_id);
  completing_.clear();
  for (const std::vector<int32_t>& word : words_) {
    const size_t size = word.size() - 1;
    if (size <= tail_.size() && std::equal(word.begin(), word.end() - 1, tail_.end() - size)) {
      completing_.push_back(word.back());
    }
  }
  sort_once(&completing_);
}

}  // namespace atom
