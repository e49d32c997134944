// All ways through the merge loop against its definition.
#include "tokenizer/merge_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace atom {
namespace {

// Random merges over a few letters. In `monotone` order every token is made before it is used.
MergeTable random_merges(std::mt19937& random, bool monotone) {
  std::map<std::string, int32_t> ids = {{"a", 0}, {"b", 1}, {"c", 2}};
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::vector<MergeTable::Merge> merges;
  std::map<std::pair<int32_t, int32_t>, bool> known;
  const size_t num_merges = 1 + random() % 24;
  for (size_t i = 0; i < num_merges; ++i) {
    const auto left = static_cast<int32_t>(random() % tokens.size());
    const auto right = static_cast<int32_t>(random() % tokens.size());
    if (known[{left, right}]) continue;
    const std::string merged = tokens[left] + tokens[right];
    const auto [it, inserted] = ids.emplace(merged, static_cast<int32_t>(tokens.size()));
    if (inserted) tokens.push_back(merged);
    known[{left, right}] = true;
    merges.push_back({left, right, it->second});
  }
  if (!monotone) std::shuffle(merges.begin(), merges.end(), random);
  return MergeTable(std::move(merges));
}

TEST(MergeLoop, AllWaysGiveTheSame) {
  std::mt19937 random(1);
  int num_monotone = 0;
  for (int round = 0; round < 4000; ++round) {
    const MergeTable table = random_merges(random, round % 2 == 0);
    num_monotone += table.monotone();
    std::vector<int32_t> symbols = {77};  // what stands before `begin` is not touched
    const size_t length = random() % (round % 3 == 0 ? 200 : 34);
    const int num_letters = 1 + static_cast<int>(random() % 3);
    for (size_t i = 0; i < length; ++i) {
      symbols.push_back(static_cast<int32_t>(random() % num_letters));
    }
    std::vector<int32_t> expected = symbols, either = symbols, long_way = symbols;
    merge_symbols_naive(table, 1, &expected);
    merge_symbols(table, 1, &either);
    merge_symbols_long(table, 1, &long_way);
    ASSERT_EQ(either, expected);
    ASSERT_EQ(long_way, expected);
  }
  // Both long ways were taken.
  EXPECT_GT(num_monotone, 1000);
  EXPECT_LT(num_monotone, 3500);
}

TEST(MergeLoop, LeavesOffBeforeItBeginsWhenNobodyWaits) {
  const std::atomic<bool> cancelled = true;
  for (const auto& table :
       {MergeTable({{0, 0, 1}, {1, 1, 2}}), MergeTable({{1, 1, 2}, {0, 0, 1}})}) {
    const std::vector<int32_t> letters(100, 0);
    std::vector<int32_t> symbols = letters;
    merge_symbols(table, 0, &symbols, &cancelled);
    EXPECT_EQ(symbols, letters);
  }
}

TEST(MergeTable, KnowsWhetherMergesAreMonotone) {
  EXPECT_TRUE(MergeTable({{0, 0, 1}, {1, 1, 2}}).monotone());
  EXPECT_FALSE(MergeTable({{1, 1, 2}, {0, 0, 1}}).monotone());
}

TEST(MergeTable, LaterOfTwoEqualPairsCounts) {
  const MergeTable table({{0, 1, 2}, {3, 4, 5}, {0, 1, 2}});
  EXPECT_EQ(table.rank(0, 1), 2u);
  EXPECT_EQ(table.rank(3, 4), 1u);
  EXPECT_EQ(table.rank(1, 0), MergeTable::kNoRank);
}

}  // namespace
}  // namespace atom
