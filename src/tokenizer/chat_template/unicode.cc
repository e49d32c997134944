#include "tokenizer/chat_template/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace atom::jinja {
namespace {

const utf8proc_uint8_t* bytes_of(std::string_view text, size_t position) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position;
}

bool is_category(char32_t code_point, utf8proc_category_t first, utf8proc_category_t last) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category >= first && category <= last;
}

char32_t simple_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t simple_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

// The letters of European text whose upper case is longer than one code point.
std::string_view long_upper(char32_t c) {
  switch (c) {
    case U'\u00DF':
      return "SS";
    case U'\uFB00':
      return "FF";
    case U'\uFB01':
      return "FI";
    case U'\uFB02':
      return "FL";
    case U'\uFB03':
      return "FFI";
    case U'\uFB04':
      return "FFL";
    case U'\uFB05':
    case U'\uFB06':
      return "ST";
    default:
      return {};
  }
}

void append_upper(std::string* out, char32_t c) {
  if (const std::string_view replacement = long_upper(c); !replacement.empty()) {
    out->append(replacement);
  } else {
    append_utf8(out, simple_upper(c));
  }
}

void append_title(std::string* out, char32_t c) {
  if (const std::string_view replacement = long_upper(c); !replacement.empty()) {
    out->append(replacement.substr(0, 1));
    out->append(to_lower(replacement.substr(1)));
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_cased(char32_t c) {
  return is_category(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT) || is_upper(c) || is_lower(c);
}

bool begins_with_letter(std::string_view text) {
  size_t position = 0;
  return !text.empty() && is_cased(next_code_point(text, &position));
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t* position) {
  const unsigned char lead = static_cast<unsigned char>(text[*position]);
  if (lead < 0x80) {
    ++*position;
    return lead;
  }
  utf8proc_int32_t code_point = 0;
  const utf8proc_ssize_t size =
      utf8proc_iterate(bytes_of(text, *position),
                       static_cast<utf8proc_ssize_t>(text.size() - *position),
                       &code_point);
  if (size <= 0) {
    ++*position;
    return U'\uFFFD';
  }
  *position += static_cast<size_t>(size);
  return static_cast<char32_t>(code_point);
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t position = 0; position < text.size(); ++count) next_code_point(text, &position);
  return count;
}

size_t previous_position(std::string_view text, size_t position) {
  size_t start = position - 1;
  while (start > 0 && position - start < 4 &&
         (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) {
    --start;
  }
  size_t end = start;
  next_code_point(text, &end);
  return end == position ? start : position - 1;
}

size_t byte_position(std::string_view text, size_t index) {
  size_t position = 0;
  for (size_t i = 0; i < index && position < text.size(); ++i) next_code_point(text, &position);
  return position;
}

void append_utf8(std::string* out, char32_t code_point) {
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  out->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(size));
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  return is_category(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}
bool is_digit(char32_t c) {
  return is_category(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND);
}
bool is_upper(char32_t c) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_lower(char32_t c) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    append_upper(&out, next_code_point(text, &position));
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, &position);
    if (c == U'\u0130') {  // capital I with a dot: the one letter whose lower case is longer
      out += "i\u0307";
    } else if (c == U'\u03A3' && in_word && !begins_with_letter(text.substr(position))) {
      out += "\u03C2";  // a sigma that ends a word
    } else {
      append_utf8(&out, simple_lower(c));
    }
    in_word = is_cased(c);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, &position);
    if (in_word) {
      append_utf8(&out, simple_lower(c));
    } else {
      append_title(&out, c);
    }
    in_word = is_cased(c);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  size_t position = 0;
  if (!text.empty()) append_title(&out, next_code_point(text, &position));
  return out + to_lower(text.substr(position));
}

std::string_view strip_space(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!is_space(next_code_point(text, &next))) break;
    begin = next;
  }
  while (right && end > begin) {
    const size_t previous = previous_position(text, end);
    size_t position = previous;
    if (!is_space(next_code_point(text, &position))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

std::string_view strip_characters(std::string_view text,
                                  std::string_view characters,
                                  bool left,
                                  bool right) {
  std::vector<char32_t> set;
  for (size_t position = 0; position < characters.size();) {
    set.push_back(next_code_point(characters, &position));
  }
  std::sort(set.begin(), set.end());
  const auto contains = [&set](char32_t c) {
    return std::binary_search(set.begin(), set.end(), c);
  };
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!contains(next_code_point(text, &next))) break;
    begin = next;
  }
  while (right && end > begin) {
    const size_t previous = previous_position(text, end);
    size_t position = previous;
    if (!contains(next_code_point(text, &position))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

}  // namespace atom::jinja
