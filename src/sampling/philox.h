// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a pure
// function from a 128-bit counter and a 64-bit key to four uniform 32-bit words. Sampling noise is
// addressed, not drawn from a stream, so a token's noise does not depend on batch, order, threads
// or on whether other tokens' noise was computed.
#pragma once

#include <array>
#include <cstdint>

namespace atom {

struct Philox {
  static constexpr uint32_t kMultiplier0 = 0xd2511f53u;
  static constexpr uint32_t kMultiplier1 = 0xcd9e8d57u;
  static constexpr uint32_t kWeyl0 = 0x9e3779b9u;
  static constexpr uint32_t kWeyl1 = 0xbb67ae85u;
  static constexpr int kNumRounds = 10;

  using Counter = std::array<uint32_t, 4>;
  using Key = std::array<uint32_t, 2>;

  static constexpr Counter generate(Counter c, Key k) {
    for (int round = 0; round < kNumRounds; ++round) {
      const uint64_t product0 = uint64_t{kMultiplier0} * c[0];
      const uint64_t product1 = uint64_t{kMultiplier1} * c[2];
      c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ k[0],
           static_cast<uint32_t>(product1),
           static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ k[1],
           static_cast<uint32_t>(product0)};
      k = {k[0] + kWeyl0, k[1] + kWeyl1};
    }
    return c;
  }
};

// The random word of one vocabulary entry at one position of one sequence. Tokens are grouped by
// 64: sixteen counters of four words each, so that sixteen lanes of counters yield the words of
// sixteen consecutive tokens four times.
//   key     = seed
//   counter = (token_id / 64 * 16 + token_id % 16, position, 0, 0)
//   word    = token_id / 16 % 4
constexpr uint32_t noise_word(uint64_t seed, uint32_t position, uint32_t token_id) {
  const Philox::Counter words =
      Philox::generate({token_id / 64 * 16 + token_id % 16, position, 0, 0},
                       {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return words[token_id / 16 % 4];
}

}  // namespace atom
