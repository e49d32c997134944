// Inside fused_moe's kernels for few tokens: matrices in integers, whose codes a bfloat16 holds.
#pragma once

#include "ops/fused_moe/moe_stream_format.cuh"

namespace atom::ops::device {

struct Int8 {};

// Four bits, 8 more than the value; kColumns of a row share a scale.
template <int kColumns>
struct Int4 {};

// Of a row that share a scale which sums are multiplied by on the way; 0: there is one for a row,
// or a format's own way.
template <typename W>
constexpr int kGroupColumns = 0;
template <int kColumns>
constexpr int kGroupColumns<Int4<kColumns>> = kColumns;

__device__ inline uint32_t subtract_bfloat16_pair(uint32_t a, uint32_t b) {
  const gpu_bfloat162 difference = __hsub2(as_pair<BFloat16>(a), as_pair<BFloat16>(b));
  uint32_t bits;
  memcpy(&bits, &difference, sizeof bits);
  return bits;
}

// 128 as a bfloat16, whose mantissa counts ones there.
constexpr uint32_t kBFloat16Ones = 0x43004300;

template <>
struct RowFormat<Int8> {
  static constexpr int kXVectors = 2;
  static constexpr bool kHasExponents = false;
  static constexpr float kUnit = 1;

  static __device__ void expand(const uint4& bits, int v, uint32_t, uint32_t (&pairs)[4]) {
    const uint32_t first = v == 0 ? bits.x : bits.z, second = v == 0 ? bits.y : bits.w;
    pairs[0] = expanded(__byte_perm(first, kBFloat16Ones, 0x5150));
    pairs[1] = expanded(__byte_perm(first, kBFloat16Ones, 0x5352));
    pairs[2] = expanded(__byte_perm(second, kBFloat16Ones, 0x5150));
    pairs[3] = expanded(__byte_perm(second, kBFloat16Ones, 0x5352));
  }

 private:
  // Of codes under kBFloat16Ones: the seven lower bits less 128 of a sign.
  static __device__ uint32_t expanded(uint32_t codes) {
    return subtract_bfloat16_pair(codes & 0xff7fff7f, codes & 0xff80ff80);
  }
};

// A word has eight elements; element i pairs with i + 4, in x too.
template <int kColumns>
struct RowFormat<Int4<kColumns>> {
  static constexpr int kXVectors = 4;
  static constexpr bool kHasExponents = false;
  static constexpr float kUnit = 1;

  static __device__ void expand(uint32_t word, uint32_t (&pairs)[4]) {
    constexpr uint32_t kEight = kBFloat16Ones + 0x00080008;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = subtract_bfloat16_pair((word >> 4 * i & 0x000f000f) | kBFloat16Ones, kEight);
    }
  }

  static __device__ uint4 paired(const uint4& x) {
    return RowFormat<Float4>::paired(x);
  }
};

// Whether the columns of x are put in pairs that are four apart.
template <typename W>
constexpr bool kPairsFourApart = RowFormat<W>::kHasExponents || kGroupColumns<W> != 0;

}  // namespace atom::ops::device
