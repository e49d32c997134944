// What sampling remembers of one sequence: how its tokens are wanted and which tokens it has had.
// The runner keeps one per sequence and appends each token it samples. Memory grows with the
// distinct tokens seen, and only when penalties need them. Sampling reads it; one thread writes.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "config/sampling_params.h"
#include "sampling/bad_words.h"
#include "sampling/thinking_budget.h"

namespace atom {

class SamplingState {
 public:
  // `params` is validated and has a seed. Only ids in [0, vocab_size) are ever sampled: vocab_size
  // is what the tokenizer knows and may be less than a row of logits. `eos_token_ids` end a
  // sequence unless params.ignore_eos.
  SamplingState(const SamplingParams& params,
                std::span<const int32_t> prompt_token_ids,
                std::span<const int32_t> eos_token_ids,
                int64_t vocab_size);

  // The next generated token.
  void append(int32_t token_id);

  const SamplingParams& params() const { return params_; }
  int64_t vocab_size() const { return vocab_size_; }
  // The position that addresses the next token's noise.
  uint32_t num_generated() const { return num_generated_; }

  // Tokens that may not come next: those that are not allowed, bad words of one token, and the end
  // tokens until min_tokens were generated.
  std::span<const int32_t> forbidden_token_ids() const {
    return forbidden_token_ids(num_generated_);
  }
  // Tokens that may not be the generated token at `position`.
  std::span<const int32_t> forbidden_token_ids(uint32_t position) const {
    return int64_t{position} < params_.min_tokens ? forbidden_at_first_ : forbidden_;
  }

  // Tokens that would complete a word that may not come.
  std::span<const int32_t> completing_token_ids() const { return bad_words_.completing(); }
  // The token that has to come next whatever else is said of it, or ThinkingBudget::kAnyToken.
  int32_t forced_token() const { return thinking_.forced_token(); }

  struct SeenToken {
    int32_t token_id;
    int32_t num_generated;  // 0: only in the prompt
  };
  // Each distinct token that a penalty may concern, in order of first appearance.
  std::span<const SeenToken> seen_tokens() const { return seen_; }

 private:
  bool in_vocabulary(int32_t token_id) const { return token_id >= 0 && token_id < vocab_size_; }
  SeenToken& seen(int32_t token_id);
  void forbid(std::span<const int32_t> token_ids);
  void forbid_all_but_allowed();
  void forbid_ends(std::span<const int32_t> eos_token_ids);

  SamplingParams params_;
  int64_t vocab_size_;
  uint32_t num_generated_ = 0;
  BadWords bad_words_;
  ThinkingBudget thinking_;
  std::vector<int32_t> forbidden_;           // ascending
  std::vector<int32_t> forbidden_at_first_;  // until min_tokens: these, and what ends a sequence
  std::vector<SeenToken> seen_;
  std::unordered_map<int32_t, uint32_t> seen_index_;  // token id -> index into seen_
};

}  // namespace atom
