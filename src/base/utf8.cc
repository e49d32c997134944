#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace atom {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Length of the ASCII run at the start.
size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

Utf8Prefix inspect_utf8(std::string_view bytes) {
  using Kind = Utf8Prefix::Kind;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Kind::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::kInvalid, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::kIncomplete, i};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) {
      return {Kind::kInvalid, i};
    }
  }
  return {Kind::kValid, length};
}

size_t utf8_sequence_size(std::string_view text) {
  const Utf8Prefix prefix = inspect_utf8(text.substr(0, 4));
  return prefix.kind == Utf8Prefix::Kind::kValid ? prefix.length : 0;
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    i += ascii_prefix(text.substr(i));
    while (i < text.size() && static_cast<unsigned char>(text[i]) >= 0x80) {
      const Utf8Prefix prefix = inspect_utf8(text.substr(i, 4));
      if (prefix.kind != Utf8Prefix::Kind::kValid) return i;
      i += prefix.length;
    }
  }
  return i;
}

bool is_ascii(std::string_view text) {
  return ascii_prefix(text) == text.size();
}

bool is_valid_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
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
