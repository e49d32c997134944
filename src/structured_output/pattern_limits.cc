#include "structured_output/pattern_limits.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace atom {
namespace {

constexpr int64_t kTooMany = kMaxPatternParts + 1;

// Adds up the parts of a pattern. Groups are the same in both languages; texts in quotes and
// comments are EBNF's.
class PartCounter {
 public:
  PartCounter(std::string_view text, bool is_ebnf) : text_(text), is_ebnf_(is_ebnf) {}

  // The largest number of a repetition; after count().
  int64_t largest_repetition() const { return largest_repetition_; }

  // kTooMany stands for anything above the limit.
  int64_t count() {
    groups_.assign(1, 0);
    while (at_ < text_.size()) take();
    int64_t total = 0;
    for (const int64_t parts : groups_) total = add(total, parts);
    return total;
  }

 private:
  static int64_t add(int64_t a, int64_t b) { return std::min(a + b, kTooMany); }

  void take() {
    const char c = text_[at_++];
    if (c == '\\') {
      ++at_;
      end_part(1);
    } else if (c == '[') {
      skip_to(']');
      end_part(1);
    } else if (is_ebnf_ && c == '"') {
      const size_t begin = at_;
      skip_to('"');
      end_part(static_cast<int64_t>(at_ - begin));
    } else if (is_ebnf_ && c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '(') {
      groups_.push_back(0);
    } else if (c == ')') {
      if (groups_.size() < 2) return;
      const int64_t parts = groups_.back();
      groups_.pop_back();
      end_part(parts);
    } else if (c == '{') {
      repeat();
    } else {
      end_part(1);
    }
  }

  void skip_to(char end) {
    while (at_ < text_.size() && text_[at_] != end) at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, text_.size());
  }

  void end_part(int64_t parts) {
    last_ = parts;
    groups_.back() = add(groups_.back(), parts);
  }

  // {m}, {m,} or {m,n} behind the last part.
  void repeat() {
    int64_t largest = 1;
    int64_t number = 0;
    for (; at_ < text_.size() && text_[at_] != '}'; ++at_) {
      const char c = text_[at_];
      number = c >= '0' && c <= '9' ? std::min(number * 10 + (c - '0'), kTooMany) : 0;
      largest = std::max(largest, number);
    }
    ++at_;
    largest_repetition_ = std::max(largest_repetition_, largest);
    const int64_t repeated = std::min(last_ * largest, kTooMany);
    groups_.back() = add(groups_.back() - std::min(last_, groups_.back()), repeated);
    last_ = repeated;
  }

  const std::string_view text_;
  const bool is_ebnf_;
  size_t at_ = 0;
  int64_t largest_repetition_ = 1;
  int64_t last_ = 0;             // parts of what a repetition would repeat
  std::vector<int64_t> groups_;  // parts so far of each open group
};

Status check_size(std::string_view text, bool is_ebnf, size_t max_bytes, const std::string& where) {
  if (text.size() > max_bytes) {
    return invalid_argument("{}: {} bytes; expected at most {}", where, text.size(), max_bytes);
  }
  if (PartCounter(text, is_ebnf).count() <= kMaxPatternParts) return {};
  return invalid_argument(
      "{}: with its repetitions written out it has more than {} parts", where, kMaxPatternParts);
}

}  // namespace

Status check_regex_size(std::string_view pattern, const std::string& where) {
  return check_size(pattern, /*is_ebnf=*/false, kMaxPatternBytes, where);
}

Status check_repetitions(std::string_view pattern, int64_t most, const std::string& where) {
  PartCounter counter(pattern, /*is_ebnf=*/false);
  (void)counter.count();
  if (counter.largest_repetition() <= most) return {};
  return unimplemented("{}: only repetitions of up to {} are supported in JSON", where, most);
}

Status check_ebnf_size(std::string_view grammar, const std::string& where) {
  return check_size(grammar, /*is_ebnf=*/true, kMaxGrammarBytes, where);
}

}  // namespace atom
