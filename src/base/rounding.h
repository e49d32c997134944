// Sizes in units that do not divide them. Values are not negative, units positive.
#pragma once

#include <cstdint>

namespace atom {

// How many units hold `value`.
constexpr int64_t ceil_div(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit;
}

// The least multiple of `unit` that is not below `value`.
constexpr int64_t round_up(int64_t value, int64_t unit) {
  return ceil_div(value, unit) * unit;
}

}  // namespace atom
