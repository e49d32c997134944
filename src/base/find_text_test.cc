#include "base/find_text.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <string>

namespace atom {
namespace {

TEST(FindText, FindsWhatTheLibraryFinds) {
  std::mt19937 random(1);
  const auto text_of = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += "ab"[random() % 8 == 0];
    return text;
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = text_of(random() % 40);
    const std::string wanted = text_of(random() % 8);
    EXPECT_EQ(find_first(text, wanted), text.find(wanted)) << text << " " << wanted;
    EXPECT_EQ(find_last(text, wanted), text.rfind(wanted)) << text << " " << wanted;
  }
}

// rfind() takes 2^40 comparisons here.
TEST(FindText, TakesLinearTimeOnTextsThatAreAlike) {
  const std::string text(1 << 21, 'a');
  const std::string half(1 << 20, 'a');
  const std::clock_t begin = std::clock();
  EXPECT_EQ(find_last(text, half + "b"), std::string::npos);
  EXPECT_EQ(find_last(text, "b" + half), std::string::npos);
  EXPECT_EQ(find_last("b" + text, "b" + half), 0u);
  EXPECT_EQ(find_first(text, half + "b"), std::string::npos);
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace atom
