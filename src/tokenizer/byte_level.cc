#include "tokenizer/byte_level.h"

#include "tokenizer/unicode.h"

namespace atom {

ByteLevelAlphabet::ByteLevelAlphabet() {
  char_to_byte_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    byte_to_char_[byte] = printable ? static_cast<char32_t>(byte) : next++;
    char_to_byte_[byte_to_char_[byte]] = static_cast<int16_t>(byte);
  }
}

const ByteLevelAlphabet& ByteLevelAlphabet::get() {
  static const ByteLevelAlphabet alphabet;
  return alphabet;
}

void ByteLevelAlphabet::append_encoded(std::string_view bytes, std::string* out) const {
  for (const char byte : bytes) append_utf8(to_char(static_cast<uint8_t>(byte)), out);
}

bool ByteLevelAlphabet::append_decoded(std::string_view valid_text, std::string* out) const {
  const size_t size_before = out->size();
  for (size_t i = 0; i < valid_text.size();) {
    size_t length;
    const int byte = to_byte(decode_utf8(valid_text.data() + i, &length));
    if (byte < 0) {
      out->resize(size_before);
      return false;
    }
    out->push_back(static_cast<char>(byte));
    i += length;
  }
  return true;
}

}  // namespace atom
