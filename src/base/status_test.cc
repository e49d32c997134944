#include "base/status.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("{} is odd", value);
  return value / 2;
}

Result<int> quarter(int value) {
  ASSIGN_OR_RETURN(const int once, half(value));
  ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

TEST(Status, CarriesCodeMessageAndContext) {
  const Status status = not_found("tensor '{}'", "a.b").with_context("shard 1");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "shard 1: tensor 'a.b'");
  EXPECT_TRUE(Status().with_context("x").ok());
}

TEST(Result, ReturnsTheValueOrTheFirstError) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd");
}

TEST(CheckDeathTest, PrintsBothSides) {
  const int a = 3;
  CHECK(a == 3);
  EXPECT_DEATH(CHECK(a == 4), "CHECK\\(a == 4\\) failed: 3 == 4 does not hold");
  EXPECT_DEATH((void)half(3).value(), "3 is odd");
}

}  // namespace
}  // namespace atom
