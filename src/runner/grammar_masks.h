// The grammars of a step: the tokens that they allow, as masks for whoever samples, and what they
// are told of those that were sampled. One thread; its work is spread over the pool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "sampling/logit_edits.h"
#include "sampling/sampler.h"
#include "structured_output/grammar_state.h"

namespace atom {

// What was sampled for a sequence, in order, and who has to take it.
struct GrammarTokens {
  GrammarState* grammar;
  std::span<SampledToken> tokens;
};

// Each grammar, none of them twice, takes its tokens; one that may not come gets an error as its
// status.
void accept_tokens(ThreadPool& pool, std::span<const GrammarTokens> sequences);

class GrammarMasks {
 public:
  // A sequence that samples: behind its known tokens, and behind each of `drafts`.
  struct Sequence {
    GrammarState* grammar = nullptr;  // null: every token may come
    std::span<const int32_t> drafts;
  };

  // Replaces what was there.
  void fill(ThreadPool& pool, std::span<const Sequence> sequences);

  // The masks of sequence `index`, one for each draft's place and one behind; null where any token
  // may come. Empty without a grammar.
  std::span<const TokenBitmask> allowed(size_t index) const;
  // Why the masks of this sequence could not be filled: it cannot go on.
  const Status& status(size_t index) const { return entries_[index].status; }

 private:
  struct Entry {
    size_t first_mask = 0;
    size_t num_masks = 0;
    size_t first_word = 0;
    size_t num_words = 0;
    Status status;
  };

  std::vector<Entry> entries_;
  std::vector<TokenBitmask> allowed_;
  std::vector<uint32_t> words_;
};

}  // namespace atom
