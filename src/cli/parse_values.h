// Values of options as numbers; nothing for text that is not exactly one.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom::cli {

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// "1, 2 3" or "[1, 2, 3]". An error names the first entry that is no token id.
Result<std::vector<int32_t>> parse_token_ids(std::string_view text);

}  // namespace atom::cli
