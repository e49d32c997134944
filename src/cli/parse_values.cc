#include "cli/parse_values.h"

#include <algorithm>

namespace atom::cli {

Result<std::vector<int32_t>> parse_token_ids(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  constexpr std::string_view kSeparators = ", \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return std::vector<int32_t>();
  text = text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    text = text.substr(1, text.size() - 2);
  }
  std::vector<int32_t> ids;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size()));
    if (text.empty()) return ids;
    const std::string_view entry = text.substr(0, text.find_first_of(kSeparators));
    text.remove_prefix(entry.size());
    const std::optional<int32_t> id = parse_number<int32_t>(entry);
    if (!id) {
      return invalid_argument("'{}' is not a token id; expected integers such as 1,2,3",
                              entry.substr(0, 40));
    }
    ids.push_back(*id);
  }
}

}  // namespace atom::cli
