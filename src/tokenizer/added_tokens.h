// Tokens that are looked for in the text before anything else: leftmost, longest, in linear time.
// Immutable once built.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/aho_corasick.h"

namespace atom {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;  // only where no word character stands next to it
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // swallows the white space after it
  bool normalized = false;   // looked for in the normalized text
  bool special = false;      // left out of decoded text on request
};

// One part of a split text: an added token (token >= 0, an index into the tokens given), or text.
struct AddedTokenSegment {
  int32_t token;
  uint32_t begin, end;
};

class AddedTokenMatcher {
 public:
  // `tokens` outlives the matcher. `patterns[i]` is what to look for in place of tokens[i].content;
  // an empty one is never found.
  AddedTokenMatcher(const std::vector<AddedToken>& tokens, std::vector<std::string> patterns);

  bool empty() const { return automaton_ == nullptr; }
  // Appends the segments of `valid_text` (less than 4 GiB), without empty text segments.
  void split(std::string_view valid_text, std::vector<AddedTokenSegment>* segments) const;

 private:
  // All matches, whatever stands around them.
  std::vector<AddedTokenSegment> find(std::string_view text) const;

  const std::vector<AddedToken>& tokens_;
  std::vector<std::string> patterns_;
  // Over the reversed patterns: read backwards, the state at a byte gives the longest pattern that
  // starts there.
  std::unique_ptr<AhoCorasick> automaton_;
  std::vector<int32_t> token_of_pattern_;
};

}  // namespace atom
