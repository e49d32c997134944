// Regular expressions of tokenizer files that no hand-written matcher covers, through PCRE2 with
// Unicode classes (its \s has U+180E besides White_Space). Matching is bounded: a pattern that
// backtracks without end gives an error.
// Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom {

// A part of a text of less than 4 GiB.
struct TextSpan {
  TextSpan(size_t begin_, size_t end_)
      : begin(static_cast<uint32_t>(begin_)), end(static_cast<uint32_t>(end_)) {}
  size_t size() const { return end - begin; }
  uint32_t begin, end;
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
