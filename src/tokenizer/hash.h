// A fast string and integer hash, seeded per process so that no file or text can be made to
// collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace atom {

// Odd, random, constant during the process.
uint64_t hash_seed();

inline uint64_t mix_hash(uint64_t value, uint64_t seed) {
  const auto product =
      static_cast<unsigned __int128>(value ^ seed) * (0x9E3779B97F4A7C15u ^ (seed << 1));
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
  const char* p = bytes.data();
  size_t left = bytes.size();
  uint64_t hash = mix_hash(left, seed);
  uint64_t word;
  for (; left >= 8; p += 8, left -= 8) {
    std::memcpy(&word, p, 8);
    hash = mix_hash(hash ^ word, seed);
  }
  if (left == 0) return hash;
  if (left >= 4) {
    uint32_t first, last;
    std::memcpy(&first, p, 4);
    std::memcpy(&last, p + left - 4, 4);
    word = uint64_t{first} << 32 | last;
  } else {
    const auto* u = reinterpret_cast<const unsigned char*>(p);
    word = uint64_t{u[0]} << 16 | uint64_t{u[left / 2]} << 8 | u[left - 1];
  }
  return mix_hash(hash ^ word, seed);
}

}  // namespace atom
