// Inside fused_moe by terms in FP8: the products of a warpgroup.
#pragma once

#include <cstdint>

namespace atom::ops::device::terms {

// d[64, kColumns] = a[64, 32] b[kColumns, 32]^T, plus d itself if `keeps`. Of a lane (g, t) =
// (lane / 4, lane % 4) of warp w a[0] has columns 4 t to 4 t + 3 of row 16 w + g, a[1] of eight
// rows further, a[2] and a[3] 16 columns further.
template <int kColumns>
__device__ inline void multiply(float (&d)[kColumns / 2],
                                const uint32_t (&a)[4],
                                uint64_t b,
                                bool keeps) {
  if constexpr (kColumns == 8) {
    asm volatile(
        "{\n.reg .pred keeps;\nsetp.ne.b32 keeps, %9, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, %8, keeps, 1, 1;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(keeps)));
  } else {
    static_assert(kColumns == 16);
    asm volatile(
        "{\n.reg .pred keeps;\nsetp.ne.b32 keeps, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, keeps, 1, 1;\n}"
        : "+f"(d[0]),
          "+f"(d[1]),
          "+f"(d[2]),
          "+f"(d[3]),
          "+f"(d[4]),
          "+f"(d[5]),
          "+f"(d[6]),
          "+f"(d[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(keeps)));
  }
}

}  // namespace atom::ops::device::terms
