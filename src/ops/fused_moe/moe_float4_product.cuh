// Inside fused_moe for many tokens by experts in MXFP4 on Hopper: the product of a warpgroup.
#pragma once

#include <cstdint>

namespace atom::ops::device::moe4 {

#define ATOM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATOM_D16(i) ATOM_D4(i), ATOM_D4(i + 4), ATOM_D4(i + 8), ATOM_D4(i + 12)
#define ATOM_NAMES16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ATOM_NAMES32 \
  ATOM_NAMES16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ATOM_NAMES64                                                                        \
  ATOM_NAMES32                                                                              \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ATOM_PRODUCT(shape, names, a0, a1, a2, a3, b_name, keeps_name, ...)                   \
  asm volatile("{\n.reg .pred keeps;\nsetp.ne.b32 keeps, " keeps_name                         \
               ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" names "}, {" a0 \
               ", " a1 ", " a2 ", " a3 "}, " b_name ", keeps, 1, 1, 0;\n}"                    \
               : __VA_ARGS__                                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(keeps)))

// d[64, kColumns] = a[64, 16] b[kColumns, 16]^T in bfloat16, plus d itself if `keeps`. Of a lane
// (g, t) = (lane / 4, lane % 4) of warp w a[0] has columns 2 t and 2 t + 1 of row 16 w + g, a[1] of
// eight rows further, a[2] and a[3] eight columns further.
template <int kColumns>
__device__ inline void multiply(float (&d)[kColumns / 2],
                                const uint32_t (&a)[4],
                                uint64_t b,
                                bool keeps) {
  if constexpr (kColumns == 32) {
    ATOM_PRODUCT("m64n32k16", ATOM_NAMES16, "%16", "%17", "%18", "%19", "%20", "%21", ATOM_D16(0));
  } else if constexpr (kColumns == 64) {
    ATOM_PRODUCT("m64n64k16",
                 ATOM_NAMES32,
                 "%32",
                 "%33",
                 "%34",
                 "%35",
                 "%36",
                 "%37",
                 ATOM_D16(0),
                 ATOM_D16(16));
  } else {
    static_assert(kColumns == 128);
    ATOM_PRODUCT("m64n128k16",
                 ATOM_NAMES64,
                 "%64",
                 "%65",
                 "%66",
                 "%67",
                 "%68",
                 "%69",
                 ATOM_D16(0),
                 ATOM_D16(16),
                 ATOM_D16(32),
                 ATOM_D16(48));
  }
}

#undef ATOM_D4
#undef ATOM_D16
#undef ATOM_NAMES16
#undef ATOM_NAMES32
#undef ATOM_NAMES64
#undef ATOM_PRODUCT

}  // namespace atom::ops::device::moe4
