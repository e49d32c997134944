// The byte-level alphabet: every byte is written as one printable character, so that a vocabulary
// of strings can hold arbitrary bytes. Bytes 33-126, 161-172 and 174-255 are their own code point;
// the other 68, in order, are U+0100 and up.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace atom {

class ByteLevelAlphabet {
 public:
  static const ByteLevelAlphabet& get();

  char32_t to_char(uint8_t byte) const { return byte_to_char_[byte]; }
  // The byte that a character stands for, or -1.
  int to_byte(char32_t c) const { return c < char_to_byte_.size() ? char_to_byte_[c] : -1; }

  // The text's bytes, each as its character.
  void append_encoded(std::string_view bytes, std::string* out) const;
  // The bytes that `text` stands for; false, with `out` unchanged, when a character stands for
  // none.
  bool append_decoded(std::string_view valid_text, std::string* out) const;

 private:
  ByteLevelAlphabet();
  std::array<char32_t, 256> byte_to_char_;
  std::array<int16_t, 0x144> char_to_byte_;
};

}  // namespace atom
