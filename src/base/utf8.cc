#include "base/utf8.h"

#include <cstdint>

namespace atom {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool is_continuation(char byte) {
  return (static_cast<uint8_t>(byte) & 0xc0) == 0x80;
}

}  // namespace

size_t utf8_sequence_size(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (!is_continuation(text[i])) return 0;
  }
  // The second byte rules out what is overlong, a surrogate, or beyond U+10FFFF.
  const auto second = static_cast<uint8_t>(text[1]);
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second >= 0xa0) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second >= 0x90) return 0;
  return size;
}

std::string to_valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t size = utf8_sequence_size(text);
    valid.append(size == 0 ? kReplacement : text.substr(0, size));
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return valid;
}

}  // namespace atom
