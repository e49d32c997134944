// Words that an answer may not have, as sequences of tokens: which token would complete one of them
// next. Only the answer's own tokens count, as in vLLM. Memory and time of a token are bounded by
// the words.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace atom {

class BadWords {
 public:
  // Words with a token outside [0, vocab_size) can never come and are dropped.
  BadWords(std::span<const std::vector<int32_t>> words, int64_t vocab_size);

  // Words of one token, which may never come; ascending, each once.
  std::span<const int32_t> always() const { return always_; }
  // Last tokens of the words whose beginning the answer ends with; ascending, each once.
  std::span<const int32_t> completing() const { return completing_; }

  // The next token of the answer.
  void append(int32_t token_id);

 private:
  std::vector<std::vector<int32_t>> words_;  // of several tokens
  size_t max_beginning_ = 0;                 // tokens of the longest of them but its last
  std::vector<int32_t> always_;
  std::vector<int32_t> tail_;  // the answer's last tokens, at most max_beginning_
  std::vector<int32_t> completing_;
};

}  // namespace atom
