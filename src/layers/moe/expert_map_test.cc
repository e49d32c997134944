#include "layers/moe/expert_map.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

TEST(ExpertMap, EveryExpertIsOnOneRankAndPlacesFollowEachOther) {
  for (const int64_t num_experts : {8, 10, 256}) {
    for (const int size : {1, 2, 3, 4, 8}) {
      std::vector<int> num_owners(num_experts, 0);
      for (int rank = 0; rank < size; ++rank) {
        const ExpertMap map = determine_expert_map(size, rank, num_experts);
        for (int64_t e = 0; e < num_experts; ++e) {
          if (map.places[e] < 0) continue;
          ++num_owners[e];
          EXPECT_EQ(map.places[e], e - map.first);
          EXPECT_LT(map.places[e], map.count);
        }
      }
      EXPECT_EQ(num_owners, std::vector<int>(num_experts, 1));
    }
  }
}

TEST(ExpertMap, TheFirstRanksHaveWhatDoesNotDivide) {
  const int64_t counts[] = {3, 3, 2, 2}, firsts[] = {0, 3, 6, 8};
  for (int rank = 0; rank < 4; ++rank) {
    const ExpertMap map = determine_expert_map(4, rank, 10);
    EXPECT_EQ(map.count, counts[rank]);
    EXPECT_EQ(map.first, firsts[rank]);
  }
}

}  // namespace
}  // namespace atom
