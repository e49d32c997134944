// Inside fused_moe by rows of matrices on Hopper: the products of a warpgroup in bfloat16.
#pragma once

#include <cstdint>

namespace atom::ops::device::rows {

#define ATOM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATOM_D8(i) ATOM_D4(i), ATOM_D4(i + 4)
#define ATOM_D16(i) ATOM_D8(i), ATOM_D8(i + 8)
#define ATOM_D32(i) ATOM_D16(i), ATOM_D16(i + 16)
#define ATOM_NAMES4 "%0, %1, %2, %3"
#define ATOM_NAMES8 ATOM_NAMES4 ", %4, %5, %6, %7"
#define ATOM_NAMES16 ATOM_NAMES8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ATOM_NAMES24 ATOM_NAMES16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define ATOM_NAMES32                                                         \
  ATOM_NAMES16                                                               \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
  "%30, %31"
#define ATOM_NAMES48                                                              \
  ATOM_NAMES32                                                                    \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47"
#define ATOM_NAMES64                                                              \
  ATOM_NAMES32                                                                    \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "   \
  "%62, %63"

// `a`: its names, `b_name` and `keeps_name`: where they stand behind the sums.
#define ATOM_PRODUCT(columns, names, a, b_name, keeps_name, options, inputs, ...)            \
  asm volatile("{\n.reg .pred keeps;\nsetp.ne.b32 keeps, " keeps_name                        \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" names \
               "}, " a ", " b_name ", keeps, 1, 1, " options ";\n}"                          \
               : __VA_ARGS__                                                                 \
               : inputs, "l"(b), "r"(static_cast<int>(keeps)))
#define ATOM_REGISTERS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

// d[64, kColumns] = a[64, 16] b[kColumns, 16]^T, plus d itself if `keeps`. Of a lane
// (g, t) = (lane / 4, lane % 4) of warp w a[0] has columns 2 t and 2 t + 1 of row 16 w + g, a[1] of
// eight rows further, a[2] and a[3] eight columns further.
template <int kColumns>
__device__ inline void multiply(float (&d)[kColumns / 2],
                                const uint32_t (&a)[4],
                                uint64_t b,
                                bool keeps) {
  if constexpr (kColumns == 8) {
    ATOM_PRODUCT("8", ATOM_NAMES4, "{%4, %5, %6, %7}", "%8", "%9", "0", ATOM_REGISTERS, ATOM_D4(0));
  } else if constexpr (kColumns == 16) {
    ATOM_PRODUCT(
        "16", ATOM_NAMES8, "{%8, %9, %10, %11}", "%12", "%13", "0", ATOM_REGISTERS, ATOM_D8(0));
  } else if constexpr (kColumns == 32) {
    ATOM_PRODUCT(
        "32", ATOM_NAMES16, "{%16, %17, %18, %19}", "%20", "%21", "0", ATOM_REGISTERS, ATOM_D16(0));
  } else if constexpr (kColumns == 48) {
    ATOM_PRODUCT("48",
                 ATOM_NAMES24,
                 "{%24, %25, %26, %27}",
                 "%28",
                 "%29",
                 "0",
                 ATOM_REGISTERS,
                 ATOM_D16(0),
                 ATOM_D8(16));
  } else if constexpr (kColumns == 64) {
    ATOM_PRODUCT(
        "64", ATOM_NAMES32, "{%32, %33, %34, %35}", "%36", "%37", "0", ATOM_REGISTERS, ATOM_D32(0));
  } else if constexpr (kColumns == 96) {
    ATOM_PRODUCT("96",
                 ATOM_NAMES48,
                 "{%48, %49, %50, %51}",
                 "%52",
                 "%53",
                 "0",
                 ATOM_REGISTERS,
                 ATOM_D32(0),
                 ATOM_D16(32));
  } else {
    static_assert(kColumns == 128);
    ATOM_PRODUCT("128",
                 ATOM_NAMES64,
                 "{%64, %65, %66, %67}",
                 "%68",
                 "%69",
                 "0",
                 ATOM_REGISTERS,
                 ATOM_D32(0),
                 ATOM_D32(32));
  }
}

// The same of a matrix in shared memory.
template <int kColumns>
__device__ inline void multiply(float (&d)[kColumns / 2], uint64_t a, uint64_t b, bool keeps) {
  if constexpr (kColumns == 8) {
    ATOM_PRODUCT("8", ATOM_NAMES4, "%4", "%5", "%6", "0, 0", "l"(a), ATOM_D4(0));
  } else if constexpr (kColumns == 16) {
    ATOM_PRODUCT("16", ATOM_NAMES8, "%8", "%9", "%10", "0, 0", "l"(a), ATOM_D8(0));
  } else if constexpr (kColumns == 32) {
    ATOM_PRODUCT("32", ATOM_NAMES16, "%16", "%17", "%18", "0, 0", "l"(a), ATOM_D16(0));
  } else if constexpr (kColumns == 48) {
    ATOM_PRODUCT("48", ATOM_NAMES24, "%24", "%25", "%26", "0, 0", "l"(a), ATOM_D16(0), ATOM_D8(16));
  } else if constexpr (kColumns == 64) {
    ATOM_PRODUCT("64", ATOM_NAMES32, "%32", "%33", "%34", "0, 0", "l"(a), ATOM_D32(0));
  } else {
    static_assert(kColumns == 128);
    ATOM_PRODUCT(
        "128", ATOM_NAMES64, "%64", "%65", "%66", "0, 0", "l"(a), ATOM_D32(0), ATOM_D32(32));
  }
}

#undef ATOM_D4
#undef ATOM_D8
#undef ATOM_D16
#undef ATOM_D32
#undef ATOM_NAMES4
#undef ATOM_NAMES8
#undef ATOM_NAMES16
#undef ATOM_NAMES24
#undef ATOM_NAMES32
#undef ATOM_NAMES48
#undef ATOM_NAMES64
#undef ATOM_PRODUCT
#undef ATOM_REGISTERS

}  // namespace atom::ops::device::rows
