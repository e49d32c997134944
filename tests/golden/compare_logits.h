// Logits of a model beside those of a golden case.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/golden/golden_runner.h"
#include "tests/golden/written_case.h"

namespace atom {

// Compares the golden positions that `result` has logits for, rows of `logits`; returns how many
// there were.
inline int compare_logits(const GoldenPrompt& prompt,
                          const Matrix& logits,
                          const GoldenResult& result,
                          double bound) {
  std::vector<float> ours;
  std::vector<float> golden;
  int num_compared = 0;
  for (size_t i = 0; i < prompt.positions.size(); ++i) {
    const auto found = result.logits.find(prompt.positions[i]);
    if (found == result.logits.end()) continue;
    ours.insert(ours.end(), found->second.begin(), found->second.end());
    const std::span<const float> row = logits.row(static_cast<int64_t>(i));
    golden.insert(golden.end(), row.begin(), row.end());
    ++num_compared;
  }
  if (num_compared > 0) {
    EXPECT_LE(relative_error(ours, golden), bound);
  }
  return num_compared;
}

}  // namespace atom
