// Whether bytes of others are UTF-8, and bytes of others made valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atom {

// What stands at the start of `bytes` (not empty).
struct Utf8Prefix {
  enum class Kind { kValid, kInvalid, kIncomplete } kind;
  // kValid: the sequence. kInvalid: the maximal subpart that one U+FFFD replaces, at least 1.
  // kIncomplete: all of `bytes`, which more bytes could complete.
  size_t length;
};
Utf8Prefix inspect_utf8(std::string_view bytes);

// Bytes of the UTF-8 sequence that `text` begins with; 0 when it begins with none (a stray or
// overlong byte, a surrogate, a sequence cut short). `text` is not empty.
size_t utf8_sequence_size(std::string_view text);

// Bytes of the longest beginning of `text` that is valid.
size_t valid_utf8_prefix(std::string_view text);
bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);

// Each byte that belongs to no valid sequence replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace atom
