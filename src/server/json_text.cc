#include "server/json_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <iterator>

#include "base/utf8.h"

namespace atom::server {
namespace {

constexpr float kLowestLogprob = -9999.0f;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_plain(unsigned char c) {
  return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

void append_escaped(std::string* out, unsigned char c) {
  switch (c) {
    case '"':
      out->append("\\\"");
      return;
    case '\\':
      out->append("\\\\");
      return;
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    default:
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", c);
  }
}

}  // namespace

void append_json_string(std::string* out, std::string_view text) {
  out->push_back('"');
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && is_plain(static_cast<unsigned char>(text[plain]))) ++plain;
    out->append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const auto c = static_cast<unsigned char>(text.front());
    size_t size = 1;
    if (c < 0x80) {
      append_escaped(out, c);
    } else if ((size = utf8_sequence_size(text)) > 0) {
      out->append(text.substr(0, size));
    } else {
      out->append(kReplacement);
      size = 1;
    }
    text.remove_prefix(size);
  }
  out->push_back('"');
}

void append_json_integer(std::string* out, int64_t value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out->append(digits.data(), end);
}

void append_json_logprob(std::string* out, float value) {
  if (!(value > kLowestLogprob)) value = kLowestLogprob;  // NaN too
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out->append(digits.data(), end);
}

void append_json_integers(std::string* out, std::span<const int32_t> values) {
  out->push_back('[');
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out->push_back(',');
    append_json_integer(out, values[i]);
  }
  out->push_back(']');
}

}  // namespace atom::server
