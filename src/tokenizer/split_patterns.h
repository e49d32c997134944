// Finding the matches of a pre-tokenizer's pattern. The patterns of the known model families have
// hand-written matchers, recognized by the exact text of the pattern, that run in linear time; any
// other pattern goes to Regex. Immutable and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/regex.h"

namespace atom {

class SplitPattern {
 public:
  virtual ~SplitPattern() = default;
  // Appends all matches in `valid_text`, left to right, not overlapping, none empty.
  virtual Status find_all(std::string_view valid_text, std::vector<TextSpan>* matches) const = 0;
};

// A hand-written matcher when there is one, else a Regex.
Result<std::unique_ptr<SplitPattern>> make_regex_pattern(const std::string& regex);
std::unique_ptr<SplitPattern> make_string_pattern(const std::string& literal);

// Characters with a numeric category, one by one or in runs.
std::unique_ptr<SplitPattern> make_digits_pattern(bool individual);
// Runs of white space.
std::unique_ptr<SplitPattern> make_white_space_pattern();
// Runs of word characters, and runs of what is neither word nor white space.
std::unique_ptr<SplitPattern> make_word_pattern();
// Single punctuation characters: \p{P} and ASCII symbols.
std::unique_ptr<SplitPattern> make_punctuation_pattern();

// The pattern of byte-level pre-tokenizers that bring none.
extern const char* const kGpt2Pattern;
// Patterns that have a hand-written matcher, for tests.
std::vector<std::string> hand_written_patterns();

}  // namespace atom
