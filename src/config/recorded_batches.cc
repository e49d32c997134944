#include "config/recorded_batches.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/parse_number.h"

namespace atom {
namespace {

Status malformed(const std::string& list) {
  return invalid_argument(
      "--recorded-batch-sizes {}: expected numbers of at least 1 with commas between, such as "
      "1,2,4 or [1,2,4]; [] records none",
      list);
}

}  // namespace

Result<std::optional<std::vector<int64_t>>> resolve_recorded_batches(const std::string& list,
                                                                     int32_t largest) {
  if (list.empty()) return std::optional<std::vector<int64_t>>();
  std::string_view text = list;
  if (text.size() > 1 && text.starts_with('[') && text.ends_with(']')) {
    text = text.substr(1, text.size() - 2);
  }
  std::vector<int64_t> sizes;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view entry = text.substr(begin, end - begin);
    entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
    const std::optional<int32_t> size = parse_number<int32_t>(entry);
    if (!size || *size < 1 || end + 1 == text.size()) return malformed(list);
    sizes.push_back(*size);
    begin = end + 1;
  }
  const size_t num_left_out = std::erase_if(sizes, [&](int64_t size) { return size > largest; });
  if (num_left_out > 0) {
    log::info("--recorded-batch-sizes: {} sizes above --max-num-seqs {} are left out",
              num_left_out,
              largest);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return std::optional(std::move(sizes));
}

}  // namespace atom
