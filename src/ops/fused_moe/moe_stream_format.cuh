// Inside fused_moe's kernels for few tokens: how 16 bytes of a matrix's row become pairs of
// bfloat16.
#pragma once

#include <cstdint>

#include "ops/device/elements.cuh"

namespace atom::ops::device {

__device__ inline uint32_t multiply_bfloat16_pair(uint32_t a, uint32_t b) {
  const gpu_bfloat162 product = __hmul2(as_pair<BFloat16>(a), as_pair<BFloat16>(b));
  uint32_t bits;
  memcpy(&bits, &product, sizeof bits);
  return bits;
}

// E2M1, two in a byte.
struct Float4 {
  uint8_t bits;
};

// How 16 bytes of a matrix's row become pairs of bfloat16, and which elements of x they meet.
template <typename W>
struct RowFormat;

template <>
struct RowFormat<BFloat16> {
  static constexpr int kXVectors = 1;  // 16-byte vectors of x that match
  static constexpr bool kHasExponents = false;
  static constexpr float kUnit = 1;  // what sums are still to be multiplied by

  // The pairs of the v-th vector of x.
  static __device__ void expand(const uint4& bits, int, uint32_t, uint32_t (&pairs)[4]) {
    pairs[0] = bits.x;
    pairs[1] = bits.y;
    pairs[2] = bits.z;
    pairs[3] = bits.w;
  }
};

// A code's exponent and mantissa under a bfloat16's exponent are 2^-120 of its value, subnormals
// too; codes of NaN become +-480.
template <>
struct RowFormat<Float8> {
  static constexpr int kXVectors = 2;
  static constexpr bool kHasExponents = false;
  static constexpr float kUnit = 1;

  static __device__ void expand(const uint4& bits, int v, uint32_t, uint32_t (&pairs)[4]) {
    const uint32_t first = v == 0 ? bits.x : bits.z, second = v == 0 ? bits.y : bits.w;
    pairs[0] = expanded(__byte_perm(first, 0, 0x1404));
    pairs[1] = expanded(__byte_perm(first, 0, 0x3424));
    pairs[2] = expanded(__byte_perm(second, 0, 0x1404));
    pairs[3] = expanded(__byte_perm(second, 0, 0x3424));
  }

 private:
  // Of codes in the upper bytes of both halves.
  static __device__ uint32_t expanded(uint32_t codes) {
    constexpr uint32_t kTwoTo120 = 0x7b807b80;
    const uint32_t small = (codes >> 4 & 0x07f007f0) | (codes & 0x80008000);
    return multiply_bfloat16_pair(small, kTwoTo120);
  }
};

// Under a bfloat16's exponent a code is 2^-126 of its value, which the factor makes up for, but for
// kUnit. A word has eight elements; element i pairs with i + 4, in x too.
template <>
struct RowFormat<Float4> {
  static constexpr int kXVectors = 4;
  static constexpr bool kHasExponents = true;
  static constexpr float kUnit = 0x1p64f;

  // 2^(exponent - 127 + 126 - 64), twice. Exponents that would leave a bfloat16's are as the
  // largest.
  static __device__ uint32_t factors(uint32_t exponent) {
    constexpr uint32_t kLargest = 192;
    return (min(exponent, kLargest) + 62) * 0x00800080;
  }

  static __device__ void expand(const uint4& bits, int v, uint32_t factors, uint32_t (&pairs)[4]) {
    constexpr uint32_t kCode = 0x81c081c0;  // of a bfloat16, in both halves
    const uint32_t word = v == 0 ? bits.x : v == 1 ? bits.y : v == 2 ? bits.z : bits.w;
    // Products put the sign and the rest where they belong, among copies that the mask drops.
    pairs[0] = (word & 0x000f000f) * 0x1040 & kCode;
    pairs[1] = (word & 0x00f000f0) * 0x104 & kCode;
    pairs[2] = (word >> 2 & 0x03c003c0) * 0x41 & kCode;
    pairs[3] = (word & 0x80008000) | (word >> 6 & 0x01c001c0);
#pragma unroll
    for (uint32_t& pair : pairs) pair = multiply_bfloat16_pair(pair, factors);
  }

  // Sixteen bytes of x, so that its pairs are those of a word.
  static __device__ uint4 paired(const uint4& x) {
    return {__byte_perm(x.x, x.z, 0x5410),
            __byte_perm(x.x, x.z, 0x7632),
            __byte_perm(x.y, x.w, 0x5410),
            __byte_perm(x.y, x.w, 0x7632)};
  }
};

}  // namespace atom::ops::device
