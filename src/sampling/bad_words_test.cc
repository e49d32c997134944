#include "sampling/bad_words.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>

namespace atom {
namespace {

using Words = std::vector<std::vector<int32_t>>;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(BadWords, WordsOfOneTokenNeverCome) {
  const BadWords words(Words{{7}, {3}, {7}, {2, 3}}, 10);
  EXPECT_THAT(words.always(), ElementsAre(3, 7));
  EXPECT_THAT(words.completing(), IsEmpty());
}

TEST(BadWords, TheLastTokenIsForbiddenBehindTheOthers) {
  BadWords words(Words{{1, 2, 3}, {2, 9}, {1, 2, 4}}, 10);
  words.append(1);
  EXPECT_THAT(words.completing(), IsEmpty());
  words.append(2);
  EXPECT_THAT(words.completing(), ElementsAre(3, 4, 9));
  words.append(5);
  EXPECT_THAT(words.completing(), IsEmpty());
}

TEST(BadWords, WordsOutsideTheVocabularyAreDropped) {
  BadWords words(Words{{10}, {-1}, {1, 10}, {}}, 10);
  EXPECT_THAT(words.always(), IsEmpty());
  words.append(1);
  EXPECT_THAT(words.completing(), IsEmpty());
}

TEST(BadWords, AgreesWithASearchOfTheWholeAnswer) {
  std::mt19937 random(4);
  const auto token = [&] { return static_cast<int32_t>(random() % 3); };
  for (int round = 0; round < 50; ++round) {
    Words list(4);
    for (auto& word : list) {
      word.resize(2 + random() % 4);
      for (int32_t& id : word) id = token();
    }
    BadWords words(list, 3);
    std::vector<int32_t> answer;
    for (int step = 0; step < 40; ++step) {
      std::set<int32_t> expected;
      for (int32_t next = 0; next < 3; ++next) {
        std::vector<int32_t> longer = answer;
        longer.push_back(next);
        for (const auto& word : list) {
          const bool is_there = longer.size() >= word.size() &&
                                std::equal(word.rbegin(), word.rend(), longer.rbegin());
          if (is_there) expected.insert(next);
        }
      }
      ASSERT_EQ(std::set<int32_t>(words.completing().begin(), words.completing().end()), expected);
      answer.push_back(token());
      words.append(answer.back());
    }
  }
}

}  // namespace
}  // namespace atom
