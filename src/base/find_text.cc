#include "base/find_text.h"

#include <string.h>  // memmem

#include <cstdint>
#include <vector>

namespace atom {
namespace {

// Of each suffix of `wanted`, by its size, the size of the longest shorter suffix that it begins
// with: Knuth, Morris and Pratt's table for a text that is read backwards.
std::vector<uint32_t> borders_from_the_end(std::string_view wanted) {
  const auto at = [wanted](size_t i) { return wanted[wanted.size() - 1 - i]; };
  std::vector<uint32_t> borders(wanted.size() + 1, 0);
  size_t size = 0;
  for (size_t i = 1; i < wanted.size(); ++i) {
    while (size > 0 && at(i) != at(size)) size = borders[size];
    if (at(i) == at(size)) ++size;
    borders[i + 1] = static_cast<uint32_t>(size);
  }
  return borders;
}

}  // namespace

size_t find_first(std::string_view text, std::string_view wanted) {
  // Two-way search beyond 256 bytes, and a bounded comparison at each position up to there.
  const void* found = memmem(text.data(), text.size(), wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return text.size();
  if (wanted.size() > text.size() || wanted.size() > UINT32_MAX) return std::string_view::npos;
  if (text.ends_with(wanted)) return text.size() - wanted.size();
  const std::vector<uint32_t> borders = borders_from_the_end(wanted);
  size_t matched = 0;
  for (size_t i = text.size(); i-- > 0;) {
    while (matched > 0 && text[i] != wanted[wanted.size() - 1 - matched])
      matched = borders[matched];
    if (text[i] == wanted[wanted.size() - 1 - matched]) ++matched;
    if (matched == wanted.size()) return i;
  }
  return std::string_view::npos;
}

}  // namespace atom
