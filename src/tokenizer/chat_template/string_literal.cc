// Escapes of text literals, as Python's "unicode-escape" reads them.
#include "tokenizer/chat_template/expression_parser.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

class Unescaper {
 public:
  Unescaper(std::string_view text, int line) : text_(text), line_(line) {}

  std::string run() {
    while (position_ < text_.size()) {
      const char c = text_[position_++];
      if (c != '\\' || position_ == text_.size()) {
        out_ += c;
      } else {
        read_escape(text_[position_++]);
      }
    }
    return std::move(out_);
  }

 private:
  void read_escape(char c) {
    switch (c) {
      case '\n':
        return;  // the line goes on
      case '\\':
      case '\'':
      case '"':
        out_ += c;
        return;
      case 'a':
        out_ += '\a';
        return;
      case 'b':
        out_ += '\b';
        return;
      case 'f':
        out_ += '\f';
        return;
      case 'n':
        out_ += '\n';
        return;
      case 'r':
        out_ += '\r';
        return;
      case 't':
        out_ += '\t';
        return;
      case 'v':
        out_ += '\v';
        return;
      case 'x':
        return read_hexadecimal(c, 2);
      case 'u':
        return read_hexadecimal(c, 4);
      case 'U':
        return read_hexadecimal(c, 8);
      case 'N':
        fail_at(line_, "'\\N{{...}}' is not supported: write '\\uXXXX'");
      default:
        break;
    }
    if (digit_value(c) < 8) {
      char32_t code_point = static_cast<char32_t>(digit_value(c));
      for (int i = 0; i < 2 && position_ < text_.size() && digit_value(text_[position_]) < 8; ++i) {
        code_point = code_point * 8 + static_cast<char32_t>(digit_value(text_[position_++]));
      }
      append_utf8(&out_, code_point);
      return;
    }
    out_ += '\\';  // an unknown escape stands for itself
    out_ += c;
  }

  void read_hexadecimal(char kind, int num_digits) {
    uint64_t code_point = 0;
    for (int i = 0; i < num_digits; ++i) {
      const int digit = position_ < text_.size() ? digit_value(text_[position_++]) : 99;
      if (digit >= 16) fail_at(line_, "'\\{}' needs {} hexadecimal digits", kind, num_digits);
      code_point = code_point * 16 + static_cast<uint64_t>(digit);
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
      fail_at(line_, "'\\{}{:x}' is not a Unicode character", kind, code_point);
    }
    append_utf8(&out_, static_cast<char32_t>(code_point));
  }

  std::string_view text_;
  int line_;
  size_t position_ = 0;
  std::string out_;
};

}  // namespace

std::string unescape_literal(std::string_view literal, int line) {
  return Unescaper(literal.substr(1, literal.size() - 2), line).run();
}

}  // namespace atom::jinja
