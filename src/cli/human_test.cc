#include "cli/human.h"

#include <gtest/gtest.h>

#include <limits>

namespace atom::cli {
namespace {

TEST(Human, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(16797704), "16.0 MiB");
  EXPECT_EQ(human_bytes(uint64_t{3440} << 20), "3.36 GiB");
  EXPECT_EQ(human_bytes(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(human_bytes(std::numeric_limits<uint64_t>::max()), "16.0 EiB");
}

TEST(Human, Count) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1000), "1.00 k");
  EXPECT_EQ(human_count(8398080), "8.40 M");
  EXPECT_EQ(human_count(999'999), "1.00 M");
  EXPECT_EQ(human_count(1'720'000'000), "1.72 B");
  EXPECT_EQ(human_count(2'000'000'000'000'000), "2000 T");
}

TEST(Human, Duration) {
  EXPECT_EQ(human_duration(0), "0 us");
  EXPECT_EQ(human_duration(850e-6), "850 us");
  EXPECT_EQ(human_duration(0.9999e-3), "1.00 ms");
  EXPECT_EQ(human_duration(12.34e-3), "12.3 ms");
  EXPECT_EQ(human_duration(1.5), "1.50 s");
  EXPECT_EQ(human_duration(59.99), "1 min 00 s");
  EXPECT_EQ(human_duration(125), "2 min 05 s");
  EXPECT_EQ(human_duration(3599.9), "1 h 00 min");
  EXPECT_EQ(human_duration(11220), "3 h 07 min");
  EXPECT_EQ(human_duration(-1), "?");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::infinity()), "?");
}

}  // namespace
}  // namespace atom::cli
