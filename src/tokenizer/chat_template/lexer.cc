#include "tokenizer/chat_template/lexer.h"

#include <algorithm>
#include <array>

#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

// Letters beyond ASCII are accepted without asking Unicode whether they may begin a name.
bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit_char(c) ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_space_only(std::string_view text) {
  return strip_space(text).empty();
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) {
      const size_t begin = find_tag();
      if (begin == std::string_view::npos) {
        add_data(source_.substr(position_));
        break;
      }
      read_tag(begin);
    }
    tokens_.push_back({TokenType::kEnd, {}, line_});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(position_); }

  size_t find_tag() const {
    size_t at = source_.find('{', position_);
    while (at != std::string_view::npos && at + 1 < source_.size()) {
      const char next = source_[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
      at = source_.find('{', at + 1);
    }
    return std::string_view::npos;
  }

  // Moves on, counting lines.
  void advance_to(size_t position) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(position_),
                                         source_.begin() + static_cast<ptrdiff_t>(position),
                                         '\n'));
    position_ = position;
  }

  void add(TokenType type, size_t size) {
    tokens_.push_back({type, source_.substr(position_, size), line_});
    advance_to(position_ + size);
  }

  // Emits `text`, which begins at the position.
  void add_data(std::string_view text) {
    if (!text.empty()) tokens_.push_back({TokenType::kData, text, line_});
  }

  // `text` without what the tag behind it strips; `sign` is the tag's '-', '+' or nothing.
  std::string_view strip_before(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip_space(text, false, true);
    if (sign == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !at_line_start_) return text;
    return is_space_only(text.substr(line_start)) ? text.substr(0, line_start) : text;
  }

  char sign_at(size_t position) const {
    const char c = position < source_.size() ? source_[position] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void read_tag(size_t begin) {
    const char kind = source_[begin + 1];
    const char sign = sign_at(begin + 2);
    add_data(strip_before(source_.substr(position_, begin - position_), sign, kind == '{'));
    advance_to(begin);
    const size_t inner = begin + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') return read_comment(inner);
    if (kind == '%' && read_raw(inner)) return;
    add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, inner - begin);
    read_expression(kind == '{');
  }

  // Goes behind the closing mark of a tag ("%}" and its like, at `position` without its sign).
  void close_tag(size_t position, char sign, bool trims_newline) {
    size_t end = position + 2;
    if (sign == '-') {
      const std::string_view behind = source_.substr(end);
      end = source_.size() - strip_space(behind, true, false).size();
    } else if (sign != '+' && trims_newline && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    at_line_start_ = end > 0 && source_[end - 1] == '\n';
    advance_to(end);
  }

  void read_comment(size_t inner) {
    const size_t end = source_.find("#}", inner);
    if (end == std::string_view::npos) {
      fail_at(line_, "the comment is not closed; '#}}' is missing");
    }
    close_tag(end, end > inner ? sign_at(end - 1) : '\0', true);
  }

  // The position behind "{% word %}" whose word begins at or behind `position`; npos if it is
  // another tag. `*mark` is where its "%}" stands.
  size_t match_word_tag(size_t position, std::string_view word, size_t* mark, char* sign) const {
    const auto skip_space = [this](size_t from) {
      return source_.size() - strip_space(source_.substr(from), true, false).size();
    };
    position = skip_space(position);
    if (source_.substr(position, word.size()) != word) return std::string_view::npos;
    position = skip_space(position + word.size());
    *sign = sign_at(position);
    *mark = position + (*sign != '\0' ? 1 : 0);
    if (source_.substr(*mark, 2) != "%}") return std::string_view::npos;
    return *mark + 2;
  }

  // Reads a whole {% raw %} ... {% endraw %}; false when the tag is another.
  bool read_raw(size_t inner) {
    size_t mark = 0;
    char sign = '\0';
    if (match_word_tag(inner, "raw", &mark, &sign) == std::string_view::npos || sign == '+') {
      return false;
    }
    const int first_line = line_;
    close_tag(mark, sign, false);
    size_t at = source_.find("{%", position_);
    for (; at != std::string_view::npos; at = source_.find("{%", at + 2)) {
      const char begin_sign = sign_at(at + 2);
      if (match_word_tag(at + 2 + (begin_sign != '\0' ? 1 : 0), "endraw", &mark, &sign) ==
          std::string_view::npos) {
        continue;
      }
      add_data(strip_before(source_.substr(position_, at - position_), begin_sign, false));
      close_tag(mark, sign, true);
      return true;
    }
    fail_at(first_line, "'raw' is not closed; 'endraw' is missing");
  }

  void read_expression(bool is_variable) {
    const int first_line = line_;
    const char close = is_variable ? '}' : '%';
    std::vector<char> open;
    while (position_ < source_.size()) {
      const char c = source_[position_];
      if (open.empty()) {
        const char sign = sign_at(position_);
        const bool has_sign = sign == '-' || (sign == '+' && !is_variable);
        const size_t mark = position_ + (has_sign ? 1 : 0);
        if (mark + 1 < source_.size() && source_[mark] == close && source_[mark + 1] == '}') {
          tokens_.push_back({is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd,
                             rest().substr(0, 2),
                             line_});
          close_tag(mark, has_sign ? sign : '\0', !is_variable);
          return;
        }
      }
      size_t next = position_;
      if (is_space(next_code_point(source_, &next))) {
        advance_to(next);
      } else if (c == '\'' || c == '"') {
        read_string(c);
      } else if (is_digit_char(c)) {
        read_number();
      } else if (is_name_char(c)) {
        size_t end = position_;
        while (end < source_.size() && is_name_char(source_[end])) ++end;
        add(TokenType::kName, end - position_);
      } else {
        read_operator(&open);
      }
    }
    fail_at(first_line, "the tag is not closed; '{}}}' is missing", close);
  }

  void read_string(char quote) {
    for (size_t end = position_ + 1; end < source_.size(); ++end) {
      if (source_[end] == '\\') {
        ++end;
      } else if (source_[end] == quote) {
        return add(TokenType::kString, end + 1 - position_);
      }
    }
    fail_at(line_, "the text that begins here is not closed; {} is missing", quote);
  }

  size_t skip_digits(size_t position) const {
    while (position < source_.size() &&
           (is_digit_char(source_[position]) ||
            (source_[position] == '_' && position + 1 < source_.size() &&
             is_digit_char(source_[position + 1])))) {
      ++position;
    }
    return position;
  }

  void read_number() {
    if (source_[position_] == '0' && position_ + 2 < source_.size() &&
        std::string_view("xXoObB").find(source_[position_ + 1]) != std::string_view::npos) {
      size_t end = position_ + 2;
      while (end < source_.size() && is_name_char(source_[end])) ++end;
      return add(TokenType::kInteger, end - position_);
    }
    size_t end = skip_digits(position_);
    bool is_float = false;
    // Behind a dot the digits are an index: a.0.1 has no float.
    const bool is_index = position_ > 0 && source_[position_ - 1] == '.';
    if (!is_index) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit_char(source_[end + 1])) {
        is_float = true;
        end = skip_digits(end + 1);
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t digits = end + 1 + (sign_at(end + 1) != '\0' ? 1 : 0);
        if (digits < source_.size() && is_digit_char(source_[digits])) {
          is_float = true;
          end = skip_digits(digits);
        }
      }
    }
    add(is_float ? TokenType::kFloat : TokenType::kInteger, end - position_);
  }

  void read_operator(std::vector<char>* open) {
    const auto found = std::find_if(kOperators.begin(), kOperators.end(), [this](auto candidate) {
      return rest().starts_with(candidate);
    });
    if (found == kOperators.end()) {
      size_t next = position_;
      next_code_point(source_, &next);
      fail_at(line_, "unexpected character '{}'", source_.substr(position_, next - position_));
    }
    const char c = found->front();
    if (c == '(') open->push_back(')');
    if (c == '[') open->push_back(']');
    if (c == '{') open->push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (open->empty()) fail_at(line_, "unexpected '{}': nothing is open", c);
      if (open->back() != c) fail_at(line_, "unexpected '{}', expected '{}'", c, open->back());
      open->pop_back();
    }
    add(TokenType::kOperator, found->size());
  }

  std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // the tag before ended with a line end
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace atom::jinja
