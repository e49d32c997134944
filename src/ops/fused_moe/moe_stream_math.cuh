// Inside fused_moe's kernels for few tokens: how 64 bytes of 16 rows of a matrix meet up to 16
// tokens in the tensor cores.
//
// A product of a 16 x k tile of x and a k x 8 tile of W^T does not care in which order k is
// visited, as long as both sides agree. So lane (g, t) = (lane / 4, lane % 4) reads the 16 adjacent
// bytes t of the 64 from rows g and g + 8 of the matrix, and the matching elements of tokens g and
// g + 8, and hands them to the tensor cores four elements at a time.
#pragma once

#include <cstdint>

#include "ops/device/async_copy.cuh"
#include "ops/fused_moe/moe_stream_format.cuh"

namespace atom::ops::device {

// c += a b^T: a holds rows g and g + 8 of two pairs of k, b row g of the same.
__device__ inline void multiply_tile(float (&c)[4],
                                     const uint32_t (&a)[4],
                                     uint32_t b0,
                                     uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t load_shared_byte(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline uint32_t load_shared_word(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline void store_shared(uint32_t address, const uint4& value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(value.x),
               "r"(value.y),
               "r"(value.z),
               "r"(value.w)
               : "memory");
}

// The sums of a tile: c[b] are of its rows 8 b to 8 b + 7. In a lane 0 and 1 are of token g with
// rows 2 t and 2 t + 1, 2 and 3 of token g + 8.
using TileSums = float[2][4];

// This lane's addresses in shared memory for one step.
struct StepPlace {
  uint32_t rows;       // of a tile, kRowStride apart
  uint32_t x;          // of tokens, x_row_stride apart
  uint32_t exponents;  // of rows, row_exponents apart
  int x_row_stride;
  int row_exponents;
  uint32_t scales;  // of groups of columns: of rows 2 t and 2 t + 1, row_scales apart
  int row_scales;
};

// Adds the products of one step. Without `exists` there is nothing of the row in this lane's 16
// bytes.
template <typename W, int kTokens, int kRowStride>
__device__ inline void multiply_step(const StepPlace& place, bool exists, TileSums& sums) {
  using Format = RowFormat<W>;
  constexpr uint4 kZeros{};
  constexpr int kVectors = Format::kXVectors;
  uint4 rows[2] = {kZeros, kZeros};
  uint32_t factors[2] = {};
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    if (!exists) continue;
    rows[b] = load_shared(place.rows + 8 * b * kRowStride);
    if constexpr (Format::kHasExponents) {
      factors[b] = Format::factors(load_shared_byte(place.exponents + 8 * b * place.row_exponents));
    }
  }
  // With four vectors lanes begin at different ones, against bank conflicts.
  const int turn = kVectors == 4 ? threadIdx.x / 2 % 2 : 0;
  if (kVectors == 4 && turn != 0) {
#pragma unroll
    for (uint4& bits : rows) bits = {bits.y, bits.z, bits.w, bits.x};
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const uint32_t x = place.x + (v + turn) % kVectors * kVectorSize;
    const uint4 first = exists ? load_shared(x) : kZeros;
    const uint4 second = kTokens > 8 && exists ? load_shared(x + 8 * place.x_row_stride) : kZeros;
    uint32_t pairs[2][4];
#pragma unroll
    for (int b = 0; b < 2; ++b) Format::expand(rows[b], v, factors[b], pairs[b]);
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      multiply_tile(sums[b], {first.x, second.x, first.y, second.y}, pairs[b][0], pairs[b][1]);
    }
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      multiply_tile(sums[b], {first.z, second.z, first.w, second.w}, pairs[b][2], pairs[b][3]);
    }
  }
}

}  // namespace atom::ops::device
