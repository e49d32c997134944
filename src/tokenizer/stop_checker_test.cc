#include "tokenizer/stop_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace atom {
namespace {

TEST(StopStringMatcher, HoldsBackWhatCouldBeAStop) {
  StopStringMatcher matcher({"\nUser:"}, false);
  EXPECT_EQ(matcher.feed("Hi\nUs").text, "Hi");
  EXPECT_EQ(matcher.feed("ual\n").text, "\nUsual");
  const auto output = matcher.feed("User: more");
  EXPECT_TRUE(output.found);
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.stop_index, 0);
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(matcher.feed("more").text, "");
}

TEST(StopStringMatcher, FinishGivesOutWhatWasHeld) {
  StopStringMatcher matcher({"", "stop"}, false);
  EXPECT_EQ(matcher.feed("don't sto").text, "don't ");
  EXPECT_EQ(matcher.finish(), "sto");
}

TEST(StopStringMatcher, EarliestEndWinsThenTheLongest) {
  EXPECT_EQ(StopStringMatcher({"abcdef", "cd"}, false).feed("abcdef").text, "ab");
  const auto output = StopStringMatcher({"b", "ab"}, false).feed("xab");
  EXPECT_EQ(output.text, "x");
  EXPECT_EQ(output.stop_index, 1);
}

TEST(StopStringMatcher, CanIncludeTheStop) {
  StopStringMatcher matcher({"END"}, true);
  EXPECT_EQ(matcher.feed("the E").text, "the ");
  EXPECT_EQ(matcher.feed("ND of").text, "END");
}

TEST(StopStringMatcher, WithoutStopStringsEverythingPasses) {
  StopStringMatcher matcher({}, false);
  EXPECT_EQ(matcher.feed("abc").text, "abc");
}

// In any parts, the text given out is what a search in the whole text gives.
TEST(StopStringMatcher, AgreesWithASearchInTheWholeText) {
  std::mt19937 random(9);
  const auto random_string = [&](size_t max_length) {
    std::string text;
    const size_t length = random() % (max_length + 1);
    for (size_t i = 0; i < length; ++i) text.push_back(static_cast<char>('a' + random() % 2));
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 4; i > 0; --i) stops.push_back(random_string(5));
    const std::string text = random_string(24);
    size_t best_end = std::string::npos, best_size = 0;
    for (const std::string& stop : stops) {
      if (stop.empty() || text.find(stop) == std::string::npos) continue;
      const size_t end = text.find(stop) + stop.size();
      if (end < best_end || (end == best_end && stop.size() > best_size)) {
        best_end = end;
        best_size = stop.size();
      }
    }
    const bool include = random() % 2;
    const bool found = best_end != std::string::npos;
    const std::string expected =
        found ? text.substr(0, best_end - (include ? 0 : best_size)) : text;

    StopStringMatcher matcher(stops, include);
    std::string actual;
    bool stopped = false;
    for (size_t i = 0; i < text.size() && !stopped;) {
      const size_t size = std::min<size_t>(random() % 4, text.size() - i);
      const auto output = matcher.feed(text.substr(i, size));
      actual += output.text;
      stopped = output.found;
      i += size;
    }
    if (!stopped) actual += matcher.finish();
    ASSERT_EQ(stopped, found);
    ASSERT_EQ(actual, expected);
  }
}

}  // namespace
}  // namespace atom
