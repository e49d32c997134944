// The pseudo-random values of made-up weights, the same on every device. Plain arithmetic, so that
// device code may include it.
#pragma once

#include <stdint.h>

namespace atom {

// SplitMix64's finaliser: a bijection whose output bits all depend on every input bit.
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t random_bits(uint64_t key, int64_t index) {
  return mix_bits(key + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u);
}

// Floating point elements drawn from one hash, 16 bits each.
constexpr int64_t kRandomElementsPerHash = 4;

// Element `index` of the four, in (-32768, 32768): multiplied by half_width / 32767.5.
constexpr float random_step(uint64_t bits, int index) {
  const auto field = static_cast<int32_t>(bits >> (16 * index) & 0xffff);
  return static_cast<float>(field) - 32767.5f;
}

}  // namespace atom
