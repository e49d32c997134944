#include "runner/grammar_masks.h"

#include <algorithm>

namespace atom {
namespace {

// A sequence takes some microseconds: a few of them are not worth another thread.
constexpr int64_t kAcceptGrain = 8;

}  // namespace

void accept_tokens(ThreadPool& pool, std::span<const GrammarTokens> sequences) {
  pool.parallel_for(std::ssize(sequences), kAcceptGrain, [&](int64_t begin, int64_t end) {
    for (const GrammarTokens& sequence : sequences.subspan(begin, end - begin)) {
      for (SampledToken& token : sequence.tokens) {
        if (token.status.ok()) token.status = sequence.grammar->accept(token.token_id);
      }
    }
  });
}

void GrammarMasks::fill(ThreadPool& pool, std::span<const Sequence> sequences) {
  entries_.assign(sequences.size(), {});
  std::vector<size_t> constrained;
  size_t num_masks = 0;
  size_t num_words = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].grammar == nullptr) continue;
    Entry& entry = entries_[i];
    entry.first_mask = num_masks;
    entry.first_word = num_words;
    entry.num_masks = 1 + sequences[i].drafts.size();
    entry.num_words = entry.num_masks * sequences[i].grammar->num_mask_words();
    num_masks += entry.num_masks;
    num_words += entry.num_words;
    constrained.push_back(i);
  }
  allowed_.assign(num_masks, nullptr);
  if (words_.size() < num_words) words_.resize(num_words);
  pool.parallel_for(std::ssize(constrained), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      Entry& entry = entries_[constrained[k]];
      const Sequence& sequence = sequences[constrained[k]];
      entry.status = sequence.grammar->fill_masks(
          sequence.drafts,
          std::span(words_).subspan(entry.first_word, entry.num_words),
          std::span(allowed_).subspan(entry.first_mask, entry.num_masks));
    }
  });
}

std::span<const TokenBitmask> GrammarMasks::allowed(size_t index) const {
  const Entry& entry = entries_[index];
  return std::span(allowed_).subspan(entry.first_mask, entry.num_masks);
}

}  // namespace atom
