#include "engine/prefix_places.h"

#include <gtest/gtest.h>

#include <numeric>

namespace atom {
namespace {

std::vector<int32_t> tokens(int32_t first, int64_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

TEST(PrefixPlaces, TheLongestCommonBeginningCountsInWholeChunks) {
  PrefixPlaces places;
  std::vector<int32_t> prompt = tokens(0, 300);
  places.note(1, prefix_hashes(prompt, ""));
  EXPECT_EQ(places.num_cached_tokens(1, prefix_hashes(prompt, "")), 256);
  EXPECT_EQ(places.num_cached_tokens(0, prefix_hashes(prompt, "")), 0);
  prompt[130] = 7;  // in the third chunk, and so in all behind it
  EXPECT_EQ(places.num_cached_tokens(1, prefix_hashes(prompt, "")), 128);
  EXPECT_TRUE(prefix_hashes(tokens(0, 63), "").empty());
}

TEST(PrefixPlaces, SaltsShareNothing) {
  PrefixPlaces places;
  places.note(0, prefix_hashes(tokens(0, 64), "a"));
  EXPECT_EQ(places.num_cached_tokens(0, prefix_hashes(tokens(0, 64), "a")), 64);
  EXPECT_EQ(places.num_cached_tokens(0, prefix_hashes(tokens(0, 64), "b")), 0);
}

TEST(PrefixPlaces, ACoreThatHasLostEverythingHasNothing) {
  PrefixPlaces places;
  const std::vector<uint64_t> prefix = prefix_hashes(tokens(0, 128), "");
  places.note(0, prefix);
  places.note(1, prefix);
  places.forget(0);
  EXPECT_EQ(places.num_cached_tokens(0, prefix), 0);
  EXPECT_EQ(places.num_cached_tokens(1, prefix), 128);
}

TEST(PrefixPlaces, TheOldestAreForgottenAndThoseInUseAreKept) {
  PrefixPlaces places(/*num_chunks=*/8);
  const std::vector<uint64_t> used = prefix_hashes(tokens(0, 64), "");
  const std::vector<uint64_t> unused = prefix_hashes(tokens(1000, 64), "");
  places.note(0, used);
  places.note(0, unused);
  for (int32_t i = 0; i < 64; ++i) {
    places.note(0, prefix_hashes(tokens(2000 + 100 * i, 64), ""));
    places.note(0, used);
  }
  EXPECT_EQ(places.num_cached_tokens(0, used), 64);
  EXPECT_EQ(places.num_cached_tokens(0, unused), 0);
}

}  // namespace
}  // namespace atom
