#include "tokenizer/unicode.h"

#include <utf8proc.h>

namespace atom {

namespace {

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

uint8_t classes_of_category(utf8proc_propval_t category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpperTitle;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    default:
      return 0;
  }
}

}  // namespace

UnicodeTables::UnicodeTables() : classes_(kTableSize, 0), nfc_inert_(kTableSize, true) {
  constexpr uint16_t kNoDecomposition = UINT16_MAX;
  for (char32_t c = 0; c < kTableSize; ++c) {
    const utf8proc_property_t* property = utf8proc_get_property(static_cast<int32_t>(c));
    classes_[c] = classes_of_category(property->category);
    if (property->combining_class != 0) nfc_inert_[c] = false;
    if (property->decomp_seqindex == kNoDecomposition || property->decomp_type != 0) continue;
    // A canonical decomposition: its tail may compose with what stands before, and the character
    // itself changes under NFC when it does not recompose.
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto num_parts =
        utf8proc_decompose_char(static_cast<int32_t>(c), parts, 32, UTF8PROC_DECOMPOSE, &boundary);
    if (num_parts < 1 || num_parts > 32) continue;
    for (utf8proc_ssize_t i = 1; i < num_parts; ++i) {
      if (static_cast<char32_t>(parts[i]) < kTableSize) nfc_inert_[parts[i]] = false;
    }
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    const auto composed = utf8proc_normalize_utf32(parts, num_parts, options);
    if (composed != 1 || static_cast<char32_t>(parts[0]) != c) nfc_inert_[c] = false;
  }
  for (char32_t c = 0; c <= 0x3000; ++c) {
    if (is_white_space(c)) classes_[c] |= kSpace;
  }
  // Hangul vowels and trailing consonants compose by arithmetic.
  for (char32_t c = 0x1161; c <= 0x11C2; ++c) nfc_inert_[c] = false;
}

const UnicodeTables& UnicodeTables::get() {
  static const UnicodeTables tables;
  return tables;
}

char32_t decode_utf8_before(std::string_view text, size_t end, size_t* length) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return decode_utf8(text.data() + begin, length);
}

void append_utf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

std::string sanitize_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out.append(kReplacementCharacter);
    text.remove_prefix(inspect_utf8(text.substr(0, 4)).length);
  }
  return out;
}

size_t count_code_points(std::string_view valid_text) {
  size_t count = 0;
  for (const char c : valid_text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<int32_t>(c))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  if (UnicodeTables::get().classes(c) & (kLetter | kMark)) return true;
  // Alphabetic symbols and the join controls.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C ||
         c == 0x200D;
}

}  // namespace atom
