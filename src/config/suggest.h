// "Did you mean": the known name that a mistyped one is closest to.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace atom {

// The candidate with the fewest single-character edits (insertion, deletion, substitution, swap of
// neighbors) from `wrong`; the first of equals. Empty when none is close enough to be meant.
std::string nearest_name(std::string_view wrong, std::span<const std::string> candidates);

}  // namespace atom
