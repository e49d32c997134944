// Regular expressions of tokenizer files that no hand-written matcher covers, through PCRE2 with
// Unicode classes. Matching is bounded: a pattern that backtracks without end gives an error.
// Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom {

struct TextSpan {
  size_t begin, end;
};

class Regex {
 public:
  // As in the reference tokenizers, ^ and $ also match at line borders.
  static Result<Regex> compile(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Appends all matches, left to right and not overlapping; empty matches are left out.
  Status find_all(std::string_view valid_text, std::vector<TextSpan>* matches) const;

 private:
  struct Program;
  explicit Regex(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace atom
