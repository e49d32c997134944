#include "tokenizer/split_patterns.h"

#include "tokenizer/unicode.h"

namespace atom {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekNumberPattern = R"(\p{N}{1,3})";
constexpr const char* kDeepseekCjkPattern = "[一-龥぀-ゟ゠-ヿ]+";
constexpr const char* kDeepseekPattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool is_newline(char c) {
  return c == '\n' || c == '\r';
}

// A text with the class of the character at a position.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), tables_(UnicodeTables::get()) {}

  struct Character {
    char32_t value;
    uint8_t classes;
    uint8_t length;
    bool in(uint8_t mask) const { return classes & mask; }
  };
  bool at_end(size_t i) const { return i >= text_.size(); }
  char byte(size_t i) const { return text_[i]; }
  Character at(size_t i) const {
    const auto first = static_cast<unsigned char>(text_[i]);
    if (first < 0x80) return {first, tables_.classes(first), 1};
    size_t length;
    const char32_t c = decode_utf8(text_.data() + i, &length);
    return {c, tables_.classes(c), static_cast<uint8_t>(length)};
  }
  // End of the run of characters in `mask` (or, with invert, in none of it) from `i`.
  size_t skip(size_t i, uint8_t mask, bool invert = false) const {
    while (!at_end(i)) {
      const Character c = at(i);
      if (c.in(mask) == invert) break;
      i += c.length;
    }
    return i;
  }
  size_t skip_newlines(size_t i, bool slash_too = false) const {
    while (!at_end(i) && (is_newline(byte(i)) || (slash_too && byte(i) == '/'))) ++i;
    return i;
  }

 private:
  std::string_view text_;
  const UnicodeTables& tables_;
};

// All matchers return the end of the match that starts at `i`, or `i` when there is none.

// 's|'t|'re|'ve|'m|'ll|'d
size_t match_contraction(const Scanner& s, size_t i, bool ignore_case) {
  if (s.at_end(i) || s.byte(i) != '\'' || s.at_end(i + 1)) return i;
  const auto letter = [&](size_t at) -> char {
    if (s.at_end(at)) return 0;
    const char c = s.byte(at);
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  switch (letter(i + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return i + 2;
    case 'r':
    case 'v':
      return letter(i + 2) == 'e' ? i + 3 : i;
    case 'l':
      return letter(i + 2) == 'l' ? i + 3 : i;
    default:
      // U+017F, the long s, equals s when case is ignored.
      return ignore_case && s.at(i + 1).value == 0x17F ? i + 3 : i;
  }
}

// \s*[\r\n]+|\s+(?!\S)|\s+ (the first alternative only with newlines_first); at white space.
size_t match_white_space(const Scanner& s, size_t i, bool newlines_first) {
  size_t end = i, last_begin = i, newline_end = i;
  while (!s.at_end(end)) {
    const Scanner::Character c = s.at(end);
    if (!c.in(kSpace)) break;
    last_begin = end;
    end += c.length;
    if (c.value == '\n' || c.value == '\r') newline_end = end;
  }
  if (newlines_first && newline_end > i) return newline_end;
  return s.at_end(end) || last_begin == i ? end : last_begin;
}

size_t match_numbers(const Scanner& s, size_t i, int max_count) {
  for (int count = 0; count < max_count && !s.at_end(i); ++count) {
    const Scanner::Character c = s.at(i);
    if (!c.in(kNumber)) break;
    i += c.length;
  }
  return i;
}

// One character that may stand in front of a word: [^\r\n] and in none of `excluded`.
bool is_word_prefix(const Scanner::Character& c, uint8_t excluded) {
  return !c.in(excluded) && c.value != '\n' && c.value != '\r';
}

// Llama 3, Qwen 2 and Qwen 3.5. kMarks: marks count as letters.
template <int kMaxNumbers, bool kMarks>
size_t match_cl100k(const Scanner& s, size_t i) {
  constexpr uint8_t kWord = kMarks ? kLetter | kMark : kLetter;
  const Scanner::Character c = s.at(i);
  if (c.in(kWord)) return s.skip(i + c.length, kWord);
  if (c.in(kNumber)) return match_numbers(s, i, kMaxNumbers);
  if (c.value == '\'') {
    if (const size_t end = match_contraction(s, i, true); end > i) return end;
  }
  size_t other = i;  // ` ?[^\s\p{L}\p{N}]+`
  if (is_word_prefix(c, kLetter | kNumber)) {
    const size_t end = s.skip(i + c.length, kWord);
    if (end > i + c.length) return end;
    if (c.value == ' ') other = i + 1;
  }
  const size_t end = s.skip(other, kWord | kNumber | kSpace, true);
  if (end > other) return s.skip_newlines(end);
  return match_white_space(s, i, true);
}

// o200k and tekken: words split where a lower-case run ends and an upper-case one begins.
struct CasedWord {
  static bool upper(const Scanner::Character& c) {
    return c.in(kMark) || (c.in(kLetter) && !c.in(kLower));
  }
  static bool lower(const Scanner::Character& c) {
    return c.in(kMark) || (c.in(kLetter) && !c.in(kUpperTitle));
  }

  // upper*lower+ from `i`, with the backtracking of a greedy upper*. `upper_end` is set to the end
  // of the upper run.
  static size_t match(const Scanner& s, size_t i, size_t* upper_end) {
    size_t end = i, last_both_end = i;
    while (!s.at_end(end)) {
      const Scanner::Character c = s.at(end);
      if (!upper(c)) break;
      end += c.length;
      if (lower(c)) last_both_end = end;
    }
    *upper_end = end;
    size_t lower_end = end;
    while (!s.at_end(lower_end)) {
      const Scanner::Character c = s.at(lower_end);
      if (!lower(c)) break;
      lower_end += c.length;
    }
    return lower_end > end ? lower_end : last_both_end;
  }
};

template <int kMaxNumbers, bool kContractions>
size_t match_o200k(const Scanner& s, size_t i) {
  const Scanner::Character c = s.at(i);
  const auto finish = [&](size_t end) {
    return kContractions ? match_contraction(s, end, true) : end;
  };
  if (c.in(kNumber)) return match_numbers(s, i, kMaxNumbers);
  const bool prefix = is_word_prefix(c, kLetter | kNumber);
  size_t after_prefix_upper_end = i, upper_end = i;
  if (prefix) {
    const size_t begin = i + c.length;
    const size_t end = CasedWord::match(s, begin, &after_prefix_upper_end);
    if (end > begin) return finish(end);
    if (after_prefix_upper_end == begin) after_prefix_upper_end = i;
  }
  if (c.in(kLetter | kMark)) {
    const size_t end = CasedWord::match(s, i, &upper_end);
    if (end > i) return finish(end);
  }
  // No lower-case letter follows: upper+lower*, where lower* has nothing to take.
  if (after_prefix_upper_end > i) return finish(after_prefix_upper_end);
  if (upper_end > i) return finish(upper_end);
  const size_t other = c.value == ' ' ? i + 1 : i;
  const size_t end = s.skip(other, kLetter | kNumber | kSpace, true);
  if (end > other) return s.skip_newlines(end, true);
  return match_white_space(s, i, true);
}

size_t match_deepseek(const Scanner& s, size_t i) {
  const auto is_ascii_letter = [&](size_t at) {
    return !s.at_end(at) && ((s.byte(at) | 0x20) >= 'a' && (s.byte(at) | 0x20) <= 'z');
  };
  const Scanner::Character c = s.at(i);
  if (c.value < 0x80 && c.in(kPunctuation | kSymbol) && is_ascii_letter(i + 1)) {
    size_t end = i + 1;
    while (is_ascii_letter(end)) ++end;
    return end;
  }
  if (c.in(kLetter)) return s.skip(i, kLetter | kMark);
  if (is_word_prefix(c, kLetter | kPunctuation | kSymbol)) {
    const size_t end = s.skip(i + c.length, kLetter | kMark);
    if (end > i + c.length) return end;
  }
  if (c.in(kMark)) return i + c.length;
  const size_t other = c.value == ' ' ? i + 1 : i;
  const size_t end = s.skip(other, kPunctuation | kSymbol);
  if (end > other) return s.skip_newlines(end);
  return c.in(kSpace) ? match_white_space(s, i, true) : i;
}

size_t match_deepseek_cjk(const Scanner& s, size_t i) {
  while (!s.at_end(i)) {
    const Scanner::Character c = s.at(i);
    if (!(c.value >= 0x4E00 && c.value <= 0x9FA5) && !(c.value >= 0x3040 && c.value <= 0x30FF)) {
      break;
    }
    i += c.length;
  }
  return i;
}

size_t match_gpt2(const Scanner& s, size_t i) {
  if (const size_t end = match_contraction(s, i, false); end > i) return end;
  const Scanner::Character c = s.at(i);
  const size_t begin = c.value == ' ' ? i + 1 : i;
  if (!s.at_end(begin)) {
    const Scanner::Character first = s.at(begin);
    if (first.in(kLetter)) return s.skip(begin, kLetter);
    if (first.in(kNumber)) return s.skip(begin, kNumber);
    if (!first.in(kSpace)) return s.skip(begin, kLetter | kNumber | kSpace, true);
  }
  return match_white_space(s, i, false);
}

template <int kMaxNumbers>
size_t match_number_run(const Scanner& s, size_t i) {
  return match_numbers(s, i, kMaxNumbers);
}

size_t match_white_space_run(const Scanner& s, size_t i) {
  return s.skip(i, kSpace);
}

size_t match_word_run(const Scanner& s, size_t i) {
  const auto is_word = [&](size_t at) { return is_word_character(s.at(at).value); };
  const auto is_other = [&](size_t at) { return !s.at(at).in(kSpace) && !is_word(at); };
  size_t end = i;
  while (!s.at_end(end) && is_word(end)) end += s.at(end).length;
  if (end > i) return end;
  while (!s.at_end(end) && is_other(end)) end += s.at(end).length;
  return end;
}

size_t match_punctuation(const Scanner& s, size_t i) {
  const Scanner::Character c = s.at(i);
  return c.in(kPunctuation) || (c.value < 0x80 && c.in(kSymbol)) ? i + c.length : i;
}

template <size_t (*kMatch)(const Scanner&, size_t)>
class ScannedPattern : public SplitPattern {
 public:
  Status find_all(std::string_view valid_text, std::vector<TextSpan>* matches) const override {
    const Scanner scanner(valid_text);
    for (size_t i = 0; i < valid_text.size();) {
      const size_t end = kMatch(scanner, i);
      if (end > i) {
        matches->push_back({i, end});
        i = end;
      } else {
        i += scanner.at(i).length;
      }
    }
    return {};
  }
};

class StringPattern : public SplitPattern {
 public:
  explicit StringPattern(std::string literal) : literal_(std::move(literal)) {}
  Status find_all(std::string_view valid_text, std::vector<TextSpan>* matches) const override {
    for (size_t i = valid_text.find(literal_); i != std::string_view::npos;
         i = valid_text.find(literal_, i + literal_.size())) {
      matches->push_back({i, i + literal_.size()});
    }
    return {};
  }

 private:
  std::string literal_;
};

class RegexPattern : public SplitPattern {
 public:
  explicit RegexPattern(Regex regex) : regex_(std::move(regex)) {}
  Status find_all(std::string_view valid_text, std::vector<TextSpan>* matches) const override {
    return regex_.find_all(valid_text, matches);
  }

 private:
  Regex regex_;
};

using MakePattern = std::unique_ptr<SplitPattern> (*)();

template <size_t (*kMatch)(const Scanner&, size_t)>
std::unique_ptr<SplitPattern> make_scanned() {
  return std::make_unique<ScannedPattern<kMatch>>();
}

struct KnownPattern {
  const char* regex;
  MakePattern make;
};

const KnownPattern kKnownPatterns[] = {
    {kGpt2Pattern, make_scanned<match_gpt2>},
    {kLlama3Pattern, make_scanned<match_cl100k<3, false>>},
    {kQwen2Pattern, make_scanned<match_cl100k<1, false>>},
    {kQwen35Pattern, make_scanned<match_cl100k<1, true>>},
    {kO200kPattern, make_scanned<match_o200k<3, true>>},
    {kTekkenPattern, make_scanned<match_o200k<1, false>>},
    {kDeepseekNumberPattern, make_scanned<match_number_run<3>>},
    {kDeepseekCjkPattern, make_scanned<match_deepseek_cjk>},
    {kDeepseekPattern, make_scanned<match_deepseek>},
};

}  // namespace

Result<std::unique_ptr<SplitPattern>> make_regex_pattern(const std::string& regex) {
  for (const KnownPattern& known : kKnownPatterns) {
    if (regex == known.regex) return known.make();
  }
  ASSIGN_OR_RETURN(Regex compiled, Regex::compile(regex));
  return std::unique_ptr<SplitPattern>(std::make_unique<RegexPattern>(std::move(compiled)));
}

std::unique_ptr<SplitPattern> make_string_pattern(const std::string& literal) {
  return std::make_unique<StringPattern>(literal);
}

std::unique_ptr<SplitPattern> make_digits_pattern(bool individual) {
  return individual ? make_scanned<match_number_run<1>>()
                    : make_scanned<match_number_run<INT32_MAX>>();
}

std::unique_ptr<SplitPattern> make_white_space_pattern() {
  return make_scanned<match_white_space_run>();
}

std::unique_ptr<SplitPattern> make_word_pattern() {
  return make_scanned<match_word_run>();
}

std::unique_ptr<SplitPattern> make_punctuation_pattern() {
  return make_scanned<match_punctuation>();
}

std::vector<std::string> hand_written_patterns() {
  std::vector<std::string> patterns;
  for (const KnownPattern& known : kKnownPatterns) patterns.emplace_back(known.regex);
  return patterns;
}

}  // namespace atom
