#include "layers/moe/expert_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace atom {
namespace {

struct Sizes {
  int64_t experts;
  int64_t redundant;
  int32_t ranks;
};

constexpr Sizes kSizes[] = {
    {8, 0, 2}, {8, 8, 2}, {6, 2, 4}, {5, 1, 2}, {16, 0, 16}, {64, 8, 8}, {128, 16, 16}, {3, 6, 3}};

// As many slots on each rank, every expert somewhere, none twice on a rank.
void expect_valid(const ExpertPlacement& placement, const Sizes& sizes) {
  EXPECT_EQ(placement.num_slots(), sizes.experts + sizes.redundant);
  std::set<int32_t> all;
  for (int32_t rank = 0; rank < placement.num_ranks; ++rank) {
    std::set<int32_t> of_rank;
    for (int64_t s = 0; s < placement.slots_of_rank(); ++s) {
      const int32_t expert = placement.expert_of[rank * placement.slots_of_rank() + s];
      EXPECT_GE(expert, 0);
      EXPECT_LT(expert, sizes.experts);
      EXPECT_TRUE(of_rank.insert(expert).second) << "rank " << rank << ", expert " << expert;
    }
    all.insert(of_rank.begin(), of_rank.end());
  }
  EXPECT_EQ(std::ssize(all), sizes.experts);
}

std::vector<int64_t> random_loads(int64_t count, std::mt19937& choose) {
  std::vector<int64_t> loads(count);
  const auto kind = choose() % 4;
  for (int64_t e = 0; e < count; ++e) {
    const auto zipf = static_cast<int64_t>(1e6 / std::pow(e + 1, 1.2));
    loads[e] = kind == 0   ? static_cast<int64_t>(choose() % 1000)
               : kind == 1 ? zipf
               : kind == 2 ? static_cast<int64_t>(choose() % 3)
                           : 0;
  }
  std::ranges::shuffle(loads, choose);
  return loads;
}

// What is in the slots after these moves.
std::vector<int32_t> moved(const ExpertPlacement& before, const std::vector<ExpertMove>& moves) {
  std::vector<int32_t> slots = before.expert_of;
  int32_t aside = -1, aside_rank = -1;
  for (const ExpertMove& move : moves) {
    const bool takes_back = move.from == ExpertMove::kAside;
    if (takes_back) {
      EXPECT_EQ(move.aside_rank, aside_rank);
      EXPECT_GE(aside, 0);
    }
    const int32_t expert = takes_back ? aside : slots[move.from];
    if (takes_back) aside = -1;
    if (move.to == ExpertMove::kAside) {
      EXPECT_EQ(aside, -1) << "it was not read";
      EXPECT_EQ(move.aside_rank, move.from / before.slots_of_rank());
      aside = expert;
      aside_rank = move.aside_rank;
    } else {
      slots[move.to] = expert;
    }
  }
  EXPECT_EQ(aside, -1);
  return slots;
}

TEST(ExpertPlacement, BeginsInOrder) {
  EXPECT_EQ(first_placement(6, 2, 4).expert_of, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 0, 1}));
  for (const Sizes& sizes : kSizes) {
    expect_valid(first_placement(sizes.experts, sizes.redundant, sizes.ranks), sizes);
  }
}

TEST(ExpertPlacement, TheBusiestGetTheRedundantSlots) {
  const ExpertPlacement first = first_placement(4, 2, 2);
  const std::vector<int64_t> loads = {1, 30, 2, 20};
  EXPECT_EQ(loads_of_ranks(loads, first), (std::vector<double>{17.5, 35.5}));
  const ExpertPlacement balanced = balanced_placement(loads, first);
  const auto slots = balanced.slots_of_experts();
  EXPECT_EQ(slots[1].size(), 2u);
  EXPECT_EQ(slots[3].size(), 2u);
  EXPECT_GT(balancedness(loads, balanced), 0.98);
  EXPECT_EQ(balanced_placement(loads, balanced), balanced);
}

TEST(ExpertPlacement, IsValidAndNoWorseForAnyLoads) {
  std::mt19937 choose(3);
  double sum_before = 0, sum_after = 0;
  for (const Sizes& sizes : kSizes) {
    ExpertPlacement now = first_placement(sizes.experts, sizes.redundant, sizes.ranks);
    for (int round = 0; round < 60; ++round) {
      const std::vector<int64_t> loads = random_loads(sizes.experts, choose);
      const ExpertPlacement next = balanced_placement(loads, now);
      expect_valid(next, sizes);
      EXPECT_EQ(next, balanced_placement(loads, now));
      const double before = balancedness(loads, now), after = balancedness(loads, next);
      EXPECT_GE(after, before);
      if (after == before) {
        EXPECT_EQ(next, now);
      }
      sum_before += before;
      sum_after += after;
      EXPECT_EQ(moved(now, plan_moves(now, next)), next.expert_of);
      now = next;
    }
  }
  EXPECT_GT(sum_after, 1.1 * sum_before);
}

TEST(ExpertPlacement, MovesGoBetweenAnyPlacements) {
  std::mt19937 choose(4);
  for (const Sizes& sizes : kSizes) {
    const ExpertPlacement first = first_placement(sizes.experts, sizes.redundant, sizes.ranks);
    ExpertPlacement now = first;
    for (int round = 0; round < 60; ++round) {
      // As far from each other as can be, of valid ones or not.
      ExpertPlacement next = first;
      std::ranges::shuffle(next.expert_of, choose);
      const std::vector<ExpertMove> moves = plan_moves(now, next);
      EXPECT_EQ(moved(now, moves), next.expert_of);
      EXPECT_LE(std::ssize(moves), 3 * now.num_slots() / 2);
      now = next;
    }
  }
}

TEST(ExpertPlacement, TwoThatChangePlacesNeedAPlaceAside) {
  const ExpertPlacement before = {2, 2, {0, 1}}, after = {2, 2, {1, 0}};
  const std::vector<ExpertMove> expected = {
      {0, ExpertMove::kAside, 0}, {1, 0}, {ExpertMove::kAside, 1, 0}};
  EXPECT_EQ(plan_moves(before, after), expected);
  EXPECT_TRUE(plan_moves(after, after).empty());
}

}  // namespace
}  // namespace atom
