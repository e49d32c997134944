// Inside fused_moe for one token on Hopper: products of codes, and scales of rows.
#pragma once

#include "ops/fused_moe/moe_device.cuh"

namespace atom::ops::device::moe_one {

constexpr int kPanel = 128;  // columns that share a scale of codes

// Two codes of a word as elements of 16 bits, which holds them exactly.
__device__ inline uint32_t as_halves(uint32_t codes) {
  uint32_t halves;
  asm("{.reg .b16 pair;\ncvt.u16.u32 pair, %1;\ncvt.rn.f16x2.e4m3x2 %0, pair;}"
      : "=r"(halves)
      : "r"(codes));
  return halves;
}

// d[16 rows, 8 columns] += a[16 rows, 16] b[8 columns, 16]^T. A lane's word of each row of a is
// four neighboring codes, in whatever order of columns, which is the same for b.
__device__ inline void multiply(float (&d)[4], uint32_t a, uint32_t below, const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(as_halves(a)),
        "r"(as_halves(below)),
        "r"(as_halves(a >> 16)),
        "r"(as_halves(below >> 16)),
        "r"(b[0]),
        "r"(b[1]));
}

// Where a matrix's scales of an expert's row are: one for each 128 rows, each row, or all.
class ScaleRows {
 public:
  __device__ explicit ScaleRows(const ExpertMatrices& matrices)
      : matrices_(matrices),
        shift_(matrices.scale_rows == 1        ? 0
               : matrices.scale_rows == kPanel ? 7
                                               : 31),
        has_columns_(matrices.scales_across > 1) {}

  __device__ float at(int expert, int row, int panel) const {
    if (matrices_.scales == nullptr) return 1.0f;
    const int index = (row >> shift_) * matrices_.scales_across + (has_columns_ ? panel : 0);
    return matrices_.scales[expert * matrices_.scale_stride + index];
  }

 private:
  const ExpertMatrices& matrices_;
  const int shift_;
  const bool has_columns_;
};

}  // namespace atom::ops::device::moe_one
