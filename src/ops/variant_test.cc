#include "ops/variant.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace atom::ops {
namespace {

// Before anything reads the environment.
const int kWishes = ::setenv(
    "ATOM_OP_VARIANT", "forced=second,preferred=+small,preferred=+new,other=reference,broken", 1);

bool is_small(const int& size) {
  return size < 10;
}

using Launch = int();
int one() {
  return 1;
}

constexpr Variant<int, Launch> kTable[] = {
    {"new", CpuIsa::kScalar, nullptr, one, DeviceType::kCpu, RowOrder::kMixed, kCandidate},
    {"hidden", CpuIsa::kScalar, nullptr, one, DeviceType::kCpu, RowOrder::kFixed, kCandidate},
    {"small", CpuIsa::kScalar, is_small, one},
    {"first", CpuIsa::kScalar, nullptr, one},
    {"second", CpuIsa::kScalar, is_small, one, DeviceType::kCpu, RowOrder::kMixed},
};

std::string picked(std::string_view op, int size, bool fixed_rows = false) {
  return pick_variant(op, kTable, DeviceType::kCpu, size, fixed_rows).name;
}

// Although another operator's wishes name one of them.
TEST(Variant, CandidatesDoNotServe) {
  ASSERT_EQ(kWishes, 0);
  EXPECT_EQ(picked("plain", 5), "small");
  EXPECT_EQ(picked("plain", 50), "first");
}

TEST(Variant, ANamedCandidateCanBeAskedFor) {
  EXPECT_NE(named_variant(kTable, "new", DeviceType::kCpu, 5), nullptr);
  EXPECT_EQ(named_variant(kTable, "hidden", DeviceType::kCpu, 5), nullptr);
  EXPECT_EQ(named_variants(), (std::vector<std::string>{"second", "small", "new", "reference"}));
}

// In the order of the table, where they run the call; else what serves does.
TEST(Variant, PreferredOnesComeFirst) {
  EXPECT_EQ(picked("preferred", 5), "new");
  EXPECT_EQ(picked("preferred", 5, true), "small");
  EXPECT_EQ(picked("preferred", 50, true), "first");
}

TEST(Variant, AForcedOneIsNotReplaced) {
  EXPECT_EQ(picked("forced", 5), "second");
  EXPECT_DEATH(picked("forced", 50), "ATOM_OP_VARIANT wants 'second'");
  EXPECT_DEATH(picked("forced", 5, true), "ATOM_OP_VARIANT wants 'second'");
}

}  // namespace
}  // namespace atom::ops
