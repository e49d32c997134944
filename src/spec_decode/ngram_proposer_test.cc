#include "spec_decode/ngram_proposer.h"

#include <gtest/gtest.h>

#include <random>

namespace atom {
namespace {

using Tokens = std::vector<int32_t>;

TEST(NgramProposer, DraftsWhatFollowedTheSameTokensBefore) {
  const NgramProposer proposer(2, 4);
  EXPECT_EQ(proposer.propose(Tokens{1, 2, 3, 4, 5, 9, 2, 3}, 3), (Tokens{4, 5, 9}));
}

TEST(NgramProposer, TheLongestRepetitionCountsThenTheLatest) {
  const NgramProposer proposer(1, 3);
  // "7 8" stood twice, "6 7 8" once, before them.
  EXPECT_EQ(proposer.propose(Tokens{6, 7, 8, 1, 7, 8, 2, 6, 7, 8}, 1), (Tokens{1}));
  EXPECT_EQ(proposer.propose(Tokens{5, 1, 5, 2, 5}, 1), (Tokens{2}));
}

TEST(NgramProposer, GoesRoundAtTheEnd) {
  const NgramProposer proposer(1, 3);
  EXPECT_EQ(proposer.propose(Tokens{4, 4, 4}, 5), (Tokens{4, 4, 4, 4, 4}));
  EXPECT_EQ(proposer.propose(Tokens{9, 1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
}

TEST(NgramProposer, HasNothingToSayOfNewTokens) {
  const NgramProposer proposer(2, 4);
  EXPECT_EQ(proposer.propose(Tokens{}, 3), Tokens());
  EXPECT_EQ(proposer.propose(Tokens{1}, 3), Tokens());
  EXPECT_EQ(proposer.propose(Tokens{1, 2, 3, 4, 2}, 3), Tokens());  // a run of one is too short
  EXPECT_EQ(proposer.propose(Tokens{1, 1}, 3), Tokens());
}

// Against the definition: of all places, the longest match, of these the latest.
TEST(NgramProposer, AgreesWithASearchOfAllPlaces) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto min_length = static_cast<int32_t>(1 + random() % 3);
    const auto max_length = min_length + static_cast<int32_t>(random() % 3);
    Tokens tokens(random() % 30);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 3);
    Tokens expected;
    for (int32_t length = max_length; length >= min_length && expected.empty(); --length) {
      for (int64_t begin = std::ssize(tokens) - length - 1; begin >= 0; --begin) {
        if (!std::equal(tokens.end() - length, tokens.end(), tokens.begin() + begin)) continue;
        Tokens rest(tokens.begin() + begin + length, tokens.end());
        for (size_t i = 0; i < 4; ++i) expected.push_back(rest[i % rest.size()]);
        break;
      }
    }
    EXPECT_EQ(NgramProposer(min_length, max_length).propose(tokens, 4), expected);
  }
}

}  // namespace
}  // namespace atom
