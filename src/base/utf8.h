// Bytes of others made valid UTF-8, for formats that take nothing else.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atom {

// Bytes of the UTF-8 sequence that `text` begins with; 0 when it begins with none (a stray or
// overlong byte, a surrogate, a sequence cut short). `text` is not empty.
size_t utf8_sequence_size(std::string_view text);

// Each byte that belongs to no valid sequence replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace atom
