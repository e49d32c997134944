// Unicode as the tokenizer needs it: UTF-8 in and out, character classes as one table lookup.
// The tables are built once per process from utf8proc (about a millisecond) and are immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace atom {

// Bits of a character's classes.
inline constexpr uint8_t kLetter = 1;        // \p{L}
inline constexpr uint8_t kMark = 2;          // \p{M}
inline constexpr uint8_t kNumber = 4;        // \p{N}
inline constexpr uint8_t kSpace = 8;         // White_Space
inline constexpr uint8_t kPunctuation = 16;  // \p{P}
inline constexpr uint8_t kSymbol = 32;       // \p{S}
inline constexpr uint8_t kUpperTitle = 64;   // \p{Lu} or \p{Lt}
inline constexpr uint8_t kLower = 128;       // \p{Ll}

class UnicodeTables {
 public:
  static const UnicodeTables& get();

  uint8_t classes(char32_t c) const {
    if (c < kTableSize) return classes_[c];
    return c >= 0xE0100 && c <= 0xE01EF ? kMark : 0;  // variation selectors
  }
  // Starts a region that NFC can be applied to by itself, and alone is unchanged by NFC: a starter
  // that never composes with what stands before it.
  bool nfc_inert(char32_t c) const { return c >= kTableSize || nfc_inert_[c]; }

 private:
  // Above plane 3 only the variation selectors have a class or a normal form of interest.
  static constexpr char32_t kTableSize = 0x40000;
  UnicodeTables();
  std::vector<uint8_t> classes_;
  std::vector<bool> nfc_inert_;
};

// The code point at `p`, which must start a valid sequence; sets its length in bytes.
inline char32_t decode_utf8(const char* p, size_t* length) {
  const auto* u = reinterpret_cast<const unsigned char*>(p);
  if (u[0] < 0x80) {
    *length = 1;
    return u[0];
  }
  if (u[0] < 0xE0) {
    *length = 2;
    return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
  }
  if (u[0] < 0xF0) {
    *length = 3;
    return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
  }
  *length = 4;
  return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
}

// The code point that ends just before `end`; text must be valid and end > 0.
char32_t decode_utf8_before(std::string_view text, size_t end, size_t* length);

void append_utf8(char32_t c, std::string* out);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Every maximal invalid subpart becomes U+FFFD.
std::string sanitize_utf8(std::string_view text);
size_t count_code_points(std::string_view valid_text);

// \w of the reference tokenizers: letters, marks, decimal and letter numbers, connectors.
bool is_word_character(char32_t c);
inline bool is_space(char32_t c) {
  return UnicodeTables::get().classes(c) & kSpace;
}

}  // namespace atom
