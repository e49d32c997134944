// Repetitive text must not be an attack: a million equal characters cost at most three times what a
// million characters of prose cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_data_test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
constexpr bool kTimingCounts = false;
#else
constexpr bool kTimingCounts = true;
#endif

namespace atom {
namespace {

double milliseconds_of(const Tokenizer& tokenizer, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(tokenizer.encode(text, false).ok());
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void expect_no_slow_characters(const Tokenizer& tokenizer, const std::string& name) {
  constexpr size_t kNumCharacters = 1'000'000;
  constexpr int kRepeats = 3;
  const std::string prose = make_prose(kNumCharacters);
  milliseconds_of(tokenizer, prose);
  for (const char* character : {"a", " ", "\n", "!", "1", "é", "中", "ｱ", "\u0301", "\r"}) {
    std::string text;
    for (size_t i = 0; i < kNumCharacters; ++i) text += character;
    // Interleaved, so that a busy machine slows both; medians, so that hiccups do not count.
    std::vector<double> prose_times, times;
    for (int i = 0; i < (kTimingCounts ? kRepeats : 1); ++i) {
      prose_times.push_back(milliseconds_of(tokenizer, prose));
      times.push_back(milliseconds_of(tokenizer, text));
    }
    std::sort(prose_times.begin(), prose_times.end());
    std::sort(times.begin(), times.end());
    const double ratio = times[times.size() / 2] / prose_times[prose_times.size() / 2];
    EXPECT_LE(kTimingCounts ? ratio : 0, 3.0) << name << " with \"" << character << "\"";
  }
}

TEST(TokenizerSpeed, EqualCharactersAreNotSlow) {
  const auto large = Tokenizer::from_json(make_large_tokenizer_json(150'000));
  ASSERT_TRUE(large.ok()) << large.status().message();
  expect_no_slow_characters(**large, "150k");
  for (const char* family : {"llama3", "o200k", "llama2"}) {
    const auto tokenizer = Tokenizer::load(family_folder(family));
    if (tokenizer.ok()) expect_no_slow_characters(**tokenizer, family);
  }
}

}  // namespace
}  // namespace atom
