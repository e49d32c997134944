#include "server/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "server/parsers/json_scanner.h"

namespace atom::server {
namespace {

constexpr float kLowestLogprob = -9999.0f;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes up to the first that belongs to no UTF-8 sequence.
size_t valid_size(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const bool is_ascii = static_cast<unsigned char>(text[size]) < 0x80;
    const size_t sequence = is_ascii ? 1 : utf8_sequence_size(text.substr(size));
    if (sequence == 0) break;
    size += sequence;
  }
  return size;
}

}  // namespace

void append_json_string(std::string* out, std::string_view text) {
  out->push_back('"');
  for (;;) {
    const size_t valid = valid_size(text);
    append_json_escaped(text.substr(0, valid), out);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out->append(kReplacement);
    text.remove_prefix(1);
  }
  out->push_back('"');
}

void append_json_integer(std::string* out, int64_t value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out->append(digits.data(), end);
}

void append_json_logprob(std::string* out, float value) {
  if (!std::isfinite(value) || value < kLowestLogprob) value = kLowestLogprob;
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
