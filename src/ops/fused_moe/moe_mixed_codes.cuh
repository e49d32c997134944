// Inside fused_moe by MXFP4 and FP8: codes of E2M1 as E4M3, by tables of their eight magnitudes.
//
// A row's numbers are taken in units of 2^-6 of its largest exponent's power of two, so that in a
// block whose exponent is by n smaller a magnitude m is m * 2^(6 - n). For n up to 14 these are
// numbers of E4M3: the largest is 384, and the least, of 0.5, 2^-9. Of smaller exponents they are
// rounded to multiples of 2^-9, and so are off by no more than 2^-10, which is 2^-16 of the power
// of two of the row's largest exponent, or 2^-15 of that block's least number but zero.
#pragma once

#include "ops/fused_moe/moe_mixed_stage.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"

namespace atom::ops::device::mixed {

constexpr float kUnit = 0x1p-6f;

__device__ inline uint2 load_shared_words(uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(value.x), "=r"(value.y)
               : "r"(address)
               : "memory");
  return value;
}

__device__ inline void store_shared_words(uint32_t address, uint32_t first, uint32_t second) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second)
               : "memory");
}

// A table by each of the first threads of the block.
__device__ inline void make_tables(uint32_t tables) {
  const int n = static_cast<int>(threadIdx.x);
  if (n >= kNumTables) return;
  const float power = __uint_as_float((127 + 6 - n) << 23);
  const auto pair = [&](float a, float b) { return float8_pair(a * power, b * power); };
  store_shared_words(tables + n * kTableSize,
                     pair(0.0f, 0.5f) | pair(1.0f, 1.5f) << 16,
                     pair(2.0f, 3.0f) | pair(4.0f, 6.0f) << 16);
}

// PRMT in its full form: with bit 3 of a selector the topmost bit of the byte fills all of it.
__device__ inline uint32_t permute(uint32_t low, uint32_t high, uint32_t selectors) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selectors));
  return bytes;
}

// Of eight codes the first four and the last four, by their block's table.
__device__ __forceinline__ void expand(uint32_t word,
                                       const uint2& table,
                                       uint32_t& first,
                                       uint32_t& last) {
  constexpr uint32_t kMagnitudes = 0x77777777, kSigns = 0x80808080;
  const uint32_t even = word << 4;  // even columns' signs are topmost
  const uint32_t places = word & kMagnitudes;
  first = permute(table.x, table.y, places) | (permute(even, word, 0xd9c8) & kSigns);
  last = permute(table.x, table.y, places >> 16) | (permute(even, word, 0xfbea) & kSigns);
}

}  // namespace atom::ops::device::mixed
