#include "tokenizer/json_cursor.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace atom {

namespace {
constexpr int kMaxDepth = 64;
}

bool JsonCursor::fail(std::string_view message) {
  if (!status_.ok()) return false;
  const std::string_view before = text_.substr(0, position_);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column = position_ - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
  status_ = invalid_argument("{}:{}:{}: {}", where_, line, column, message);
  return false;
}

void JsonCursor::skip_space() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
    ++position_;
  }
}

char JsonCursor::peek() {
  skip_space();
  return position_ < text_.size() ? text_[position_] : '\0';
}

bool JsonCursor::expect(char c) {
  if (!status_.ok()) return false;
  if (peek() != c) return fail(fmt::format("expected '{}'", c));
  ++position_;
  return true;
}

bool JsonCursor::begin(char open) {
  if (!expect(open)) return false;
  first_ = true;
  return true;
}

bool JsonCursor::next(char close) {
  if (!status_.ok()) return false;
  const bool first = std::exchange(first_, false);
  const char c = peek();
  if (c == close) {
    ++position_;
    return false;
  }
  if (first) return true;
  if (c != ',') return fail(fmt::format("expected ',' or '{}'", close));
  ++position_;
  return true;
}

bool JsonCursor::next_key(std::string_view* key) {
  return next('}') && read_string(key) && expect(':');
}

bool JsonCursor::next_element() {
  return next(']');
}

bool JsonCursor::read_hex4(uint32_t* value) {
  if (text_.size() - position_ < 4) return fail("a \\u escape needs four hexadecimal digits");
  *value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = text_[position_ + i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return fail("a \\u escape needs four hexadecimal digits");
    *value = *value << 4 | static_cast<uint32_t>(digit);
  }
  position_ += 4;
  return true;
}

// After a backslash.
bool JsonCursor::read_escape() {
  if (position_ >= text_.size()) return fail("a string without end");
  const char c = text_[position_++];
  static constexpr std::string_view kNames = "\"\\/bfnrt";
  static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  if (const size_t i = kNames.find(c); i != std::string_view::npos) {
    buffer_.push_back(kValues[i]);
    return true;
  }
  if (c != 'u') return fail("an unknown escape");
  uint32_t code;
  if (!read_hex4(&code)) return false;
  if (code >= 0xD800 && code < 0xE000) {
    uint32_t low = 0;
    const bool pair = code < 0xDC00 && text_.substr(position_, 2) == "\\u";
    if (pair) {
      position_ += 2;
      if (!read_hex4(&low)) return false;
    }
    if (low < 0xDC00 || low > 0xDFFF) return fail("half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(code, &buffer_);
  return true;
}

bool JsonCursor::read_string(std::string_view* value) {
  if (!status_.ok()) return false;
  if (peek() != '"') return fail("expected a string");
  const size_t begin = ++position_;
  bool escaped = false;
  for (;;) {
    const size_t run = position_;
    while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\\' &&
           static_cast<unsigned char>(text_[position_]) >= 0x20) {
      ++position_;
    }
    if (escaped) buffer_.append(text_, run, position_ - run);
    if (position_ >= text_.size()) return fail("a string without end");
    const char c = text_[position_];
    if (c == '"') break;
    if (c != '\\') return fail("a control character in a string");
    if (!escaped) buffer_.assign(text_, begin, position_ - begin);
    escaped = true;
    ++position_;
    if (!read_escape()) return false;
  }
  *value = escaped ? std::string_view(buffer_) : text_.substr(begin, position_ - begin);
  ++position_;
  return true;
}

bool JsonCursor::read_integer(int64_t* value) {
  if (!status_.ok()) return false;
  const bool negative = peek() == '-';
  if (negative) ++position_;
  const size_t begin = position_;
  int64_t magnitude = 0;
  while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
    if (position_ - begin >= 18) return fail("an integer out of range");
    magnitude = magnitude * 10 + (text_[position_++] - '0');
  }
  const char after = position_ < text_.size() ? text_[position_] : '\0';
  const bool leading_zero = position_ - begin > 1 && text_[begin] == '0';
  if (position_ == begin || leading_zero || after == '.' || after == 'e' || after == 'E') {
    return fail("expected an integer");
  }
  *value = negative ? -magnitude : magnitude;
  return true;
}

bool JsonCursor::read_null() {
  if (!status_.ok()) return false;
  if (peek() != 'n' || text_.substr(position_, 4) != "null") return fail("expected null");
  position_ += 4;
  return true;
}

bool JsonCursor::skip_value(std::string_view* raw) {
  if (!status_.ok()) return false;
  peek();
  const size_t begin = position_;
  int depth = 0;
  do {
    const char c = peek();
    std::string_view ignored;
    if (c == '\0') return fail("the document ends within a value");
    if (c == '"') {
      if (!read_string(&ignored)) return false;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return fail("nested too deeply");
      ++position_;
    } else if (c == '}' || c == ']') {
      if (--depth < 0) return fail("expected a value");
      ++position_;
    } else if (c == ',' || c == ':') {
      if (depth == 0) return fail("expected a value");
      ++position_;
    } else {  // a number or literal
      while (position_ < text_.size() &&
             std::string_view(" \n\r\t,:{}[]\"").find(text_[position_]) == std::string_view::npos) {
        ++position_;
      }
    }
  } while (depth > 0);
  *raw = text_.substr(begin, position_ - begin);
  return true;
}

bool JsonCursor::expect_end() {
  if (!status_.ok()) return false;
  skip_space();
  return position_ == text_.size() || fail("text after the end of the document");
}

}  // namespace atom
