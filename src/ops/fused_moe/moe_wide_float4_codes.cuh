// Inside fused_moe by wide tiles of matrices in MXFP4 on Hopper: codes in E2M1 become codes in E4M3
// of the same value times a power of two, by tables of the eight magnitudes.
#pragma once

#include "ops/fused_moe/moe_wide_float8_tiles.cuh"

namespace atom::ops::device::wide8 {

// Codes are made 2^kLargestShift times as large where their factor is a row's largest, and half of
// that for each power of two below: 6 becomes 384.
constexpr int kLargestShift = 6;
constexpr int kExponentBias = 127;

// Factors of rows, of which a float's exponent is at least 1.
__device__ inline float row_scale_of(int largest_exponent) {
  if (largest_exponent == 255) return NAN;
  return __int_as_float(max(largest_exponent - kLargestShift, 1) << 23);
}
__device__ inline int largest_exponent_of(float row_scale) {
  return (__float_as_int(row_scale) >> 23) + kLargestShift;
}

// By as many threads as there are tables; the last one is of zeros.
__device__ inline void make_table(const Shared<true>& shared, int distance) {
  const float unit = distance < kCodeTables - 1 ? ldexpf(1.0f, kLargestShift - distance) : 0.0f;
  const uint32_t low = float8_pair(0.0f, 0.5f * unit) | float8_pair(unit, 1.5f * unit) << 16;
  const uint32_t high = float8_pair(2 * unit, 3 * unit) | float8_pair(4 * unit, 6 * unit) << 16;
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(shared.table(distance)), "r"(low), "r"(high)
               : "memory");
}

__device__ inline uint2 load_table(uint32_t address) {
  uint2 table;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(table.x), "=r"(table.y) : "r"(address));
  return table;
}

// Of eight codes, the first one in the lowest bits.
__device__ __forceinline__ uint2 expanded(uint32_t word, const uint2& table) {
  constexpr uint32_t kSigns = 0x80808080;
  const uint32_t magnitudes = word & 0x77777777, shifted = word << 4;
  // Bytes whose highest bits are the signs of four codes.
  const uint32_t first = __byte_perm(word, shifted, 0x1504);
  const uint32_t others = __byte_perm(word, shifted, 0x3726);
  return {__byte_perm(table.x, table.y, magnitudes) | (first & kSigns),
          __byte_perm(table.x, table.y, magnitudes >> 16) | (others & kSigns)};
}

__device__ inline void store_shared_bits(uint32_t address, const uint2& low, const uint2& high) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(low.x),
               "r"(low.y),
               "r"(high.x),
               "r"(high.y)
               : "memory");
}

}  // namespace atom::ops::device::wide8
