// Text as Python sees it: UTF-8 bytes counted, cut and mapped by code point. Every function is safe
// on bytes that are not UTF-8 (a stray byte counts as one code point). Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atom::jinja {

size_t count_code_points(std::string_view text);

// The code point at `*position`, which moves behind it. Requires *position < text.size().
char32_t next_code_point(std::string_view text, size_t* position);

// The position of the code point before `position`. Requires position > 0.
size_t previous_position(std::string_view text, size_t position);

// The byte position of code point number `index`; text.size() when there are fewer.
size_t byte_position(std::string_view text, size_t index);

void append_utf8(std::string* out, char32_t code_point);

bool is_space(char32_t code_point);      // str.isspace
bool is_printable(char32_t code_point);  // str.isprintable
bool is_alpha(char32_t code_point);
bool is_digit(char32_t code_point);
bool is_upper(char32_t code_point);
bool is_lower(char32_t code_point);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);    // str.title
std::string capitalize(std::string_view text);  // str.capitalize

// Without whitespace at the chosen ends.
std::string_view strip_space(std::string_view text, bool left = true, bool right = true);

// Without the code points of `characters` at the chosen ends.
std::string_view strip_characters(std::string_view text,
                                  std::string_view characters,
                                  bool left,
                                  bool right);

}  // namespace atom::jinja
