#include "base/human.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

TEST(Human, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(int64_t{16} << 30), "16.0 GiB");
}

TEST(Human, Counts) {
  EXPECT_EQ(human_count(950), "950");
  EXPECT_EQ(human_count(8388608), "8.4 M");
  EXPECT_EQ(human_count(1.72e9), "1.7 B");
}

TEST(Human, Durations) {
  EXPECT_EQ(human_duration(0.0000125), "12 us");
  EXPECT_EQ(human_duration(0.0032), "3.2 ms");
  EXPECT_EQ(human_duration(1.5), "1.50 s");
  EXPECT_EQ(human_duration(125), "2 min 5 s");
  EXPECT_EQ(human_duration(7260), "2 h 1 min");
}

}  // namespace
}  // namespace atom
