#include "cli/token_times.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace atom::cli {

double shared_token_time(const std::vector<TokenTimes>& requests) {
  double begin = -std::numeric_limits<double>::infinity();
  double end = std::numeric_limits<double>::infinity();
  for (const TokenTimes& times : requests) {
    if (times.empty()) return 0;
    begin = std::max(begin, times.front());
    end = std::min(end, times.back());
  }
  std::vector<double> steps;
  for (const TokenTimes& times : requests) {
    const auto first = std::ranges::upper_bound(times, begin);
    const auto last = std::ranges::upper_bound(times, end);
    if (first >= last) continue;
    // Its first token is not behind `begin`, so there is one before `first`.
    steps.push_back((*(last - 1) - *(first - 1)) / static_cast<double>(last - first));
  }
  return median(std::move(steps));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace atom::cli
