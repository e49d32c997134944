// Where one sequence's answer stands in its grammar: which tokens may come next. Follows the tokens
// that have come, and those of drafts and back. With reasoning the grammar begins behind it: until
// then everything but an end token may come. One thread at a time.
//
// How long this takes is up to who wrote the grammar: the more ways to read a text it leaves open,
// the longer. So it is counted, and there is an end to it. It is counted in states that the parser
// looks at, not in seconds: all ranks that compute a sequence then end it at the same token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "structured_output/compiled_grammar.h"

namespace atom {

// How reasoning is told apart in an answer, as token ids.
struct ReasoningMarks {
  std::vector<int32_t> begin;  // of one token, the answer may begin with it; else it does not count
  std::vector<int32_t> end;    // empty: there is no reasoning
  bool has_begun = false;      // the prompt ends within it
};

class GrammarState {
 public:
  // A core looks at about 50 states in a microsecond. At most so many for a call of fill_masks(),
  static constexpr int64_t kMaxMaskWork = 10'000'000;
  // and so many for the tokens that have come: what was looked at for these is kept, too.
  static constexpr int64_t kMaxTokenWork = 10'000'000;

  GrammarState(std::shared_ptr<const CompiledGrammar> grammar, ReasoningMarks reasoning);
  ~GrammarState();
  GrammarState(GrammarState&&) noexcept;
  GrammarState& operator=(GrammarState&&) noexcept;

  // 32-bit words of a mask.
  size_t num_mask_words() const { return num_words_; }

  // Which tokens may come next, and behind each of `drafts` if those before it come: sets
  // allowed[i], of 1 + drafts, to a mask within `words`, [1 + drafts, num_mask_words()], or to null
  // where every token may come or a draft before it cannot. Bit id % 32 of word id / 32 is set when
  // the token may come. Leaves the state as it is. kResourceExhausted when it is too much work,
  // here and in all later calls.
  Status fill_masks(std::span<const int32_t> drafts,
                    std::span<uint32_t> words,
                    std::span<const uint32_t*> allowed);

  // The next token has come. An error when it may not.
  Status accept(int32_t token_id);

  // The answer is complete, its end token included. From then on only end tokens may come.
  bool is_terminated() const;

  // The states that were looked at since the last call.
  int64_t take_work() { return std::exchange(work_, 0); }

 private:
  struct Matcher;
  enum class Phase : uint8_t { kDeciding, kReasoning, kGrammar };

  template <typename Body>
  Status parse(int64_t most, Body&& body);
  const uint32_t* fill_mask(std::span<uint32_t> words);
  Status advance(int32_t token_id, int* num_matcher_tokens);
  void advance_reasoning(int32_t token_id);
  void allow_only_ends(std::span<uint32_t> words) const;

  std::unique_ptr<Matcher> matcher_;
  ReasoningMarks reasoning_;
  std::vector<int32_t> end_token_ids_;
  size_t num_words_;
  Phase phase_;
  std::vector<int32_t> tail_;  // the last tokens of the reasoning, as many as its end has
  int64_t work_ = 0;
  int64_t token_work_left_ = kMaxTokenWork;
  Status failure_ = {};  // of the matcher, which is not used any more then
};

}  // namespace atom
