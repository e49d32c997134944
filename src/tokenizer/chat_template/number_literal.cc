#include "tokenizer/chat_template/number_literal.h"

#include <charconv>
#include <cstdlib>
#include <string>

#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {
namespace {

std::string digits_of(const Token& token) {
  std::string digits;
  for (const char c : token.text) {
    if (c != '_') digits += c;
  }
  return digits;
}

}  // namespace

Value integer_literal(const Token& token) {
  const std::string digits = digits_of(token);
  int base = 10;
  size_t start = 0;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
    start = 2;
  }
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data() + start, end, value, base);
  if (parsed.ptr != end || parsed.ec != std::errc()) {
    fail_at(token.line, "'{}' is not an integer of 64 bits", token.text);
  }
  return Value::integer(value);
}

Value float_literal(const Token& token) {
  const std::string digits = digits_of(token);
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec == std::errc::result_out_of_range) value = std::strtod(digits.c_str(), nullptr);
  return Value::real(value);
}

}  // namespace atom::jinja
