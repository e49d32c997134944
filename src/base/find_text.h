// Where a text stands in another, in linear time: std::string_view's find() and rfind() take
// quadratic time when the two are alike, which a client may arrange.
#pragma once

#include <cstddef>
#include <string_view>

namespace atom {

// The first and the last position of `wanted` in `text`, or npos.
size_t find_first(std::string_view text, std::string_view wanted);
size_t find_last(std::string_view text, std::string_view wanted);

}  // namespace atom
