#include "sampling/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace atom {
namespace {

// Known answers published with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox::generate({0, 0, 0, 0}, {0, 0}),
            (Philox::Counter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(Philox::generate({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Philox::Counter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(Philox::generate({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                             {0xa4093822u, 0x299f31d0u}),
            (Philox::Counter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, EveryTokenHasItsOwnWord) {
  std::set<std::pair<uint32_t, uint32_t>> addresses;
  for (uint32_t token = 0; token < 5000; ++token) {
    addresses.insert({token / 64 * 16 + token % 16, token / 16 % 4});
  }
  EXPECT_EQ(addresses.size(), 5000u);
}

TEST(Philox, NoiseDependsOnSeedAndPosition) {
  const uint64_t seed = 0x123456789abcdef0u;
  EXPECT_EQ(noise_word(seed, 7, 100), noise_word(seed, 7, 100));
  EXPECT_NE(noise_word(seed, 7, 100), noise_word(seed, 8, 100));
  EXPECT_NE(noise_word(seed, 7, 100), noise_word(seed + 1, 7, 100));
  EXPECT_NE(noise_word(seed, 7, 100), noise_word(seed ^ (uint64_t{1} << 63), 7, 100));
}

}  // namespace
}  // namespace atom
