// Products of a warpgroup in FP8 on Hopper, by a factor in shared memory or in registers and one in
// shared memory.
#pragma once

#include <cstdint>

namespace atom::ops::device {

#define ATOM_D8(i)                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATOM_D16(i) ATOM_D8(i), ATOM_D8(i + 8)
#define ATOM_D32(i) ATOM_D16(i), ATOM_D16(i + 16)
#define ATOM_NAMES8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ATOM_NAMES16 \
  ATOM_NAMES8        \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ATOM_NAMES24 \
  ATOM_NAMES16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23"
#define ATOM_NAMES32 \
  ATOM_NAMES24       \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define ATOM_NAMES40 \
  ATOM_NAMES32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ATOM_NAMES48 \
  ATOM_NAMES40       \
  ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ATOM_NAMES56 \
  ATOM_NAMES48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55"
#define ATOM_NAMES64 \
  ATOM_NAMES56       \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define ATOM_NAMES72 \
  ATOM_NAMES64       \
  ", %64, %65, %66, %67, %68, %69, %70, %71"
#define ATOM_NAMES80 \
  ATOM_NAMES72       \
  ", %72, %73, %74, %75, %76, %77, %78, %79"
#define ATOM_NAMES88 \
  ATOM_NAMES80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87"

// `a_name`, `b_name` and `keeps_name`: where they stand behind the sums.
#define ATOM_PRODUCT_OF(a_inputs, columns, names, a_name, b_name, keeps_name, ...)           \
  asm volatile("{\n.reg .pred keeps;\nsetp.ne.b32 keeps, " keeps_name                        \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns "k32.f32.e4m3.e4m3 {" names \
               "}, " a_name ", " b_name ", keeps, 1, 1;\n}"                                  \
               : __VA_ARGS__                                                                 \
               : a_inputs, "l"(b), "r"(static_cast<int>(keeps)))
#define ATOM_SHARED "l"(a)
#define ATOM_REGISTERS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define ATOM_PRODUCT(...) ATOM_PRODUCT_OF(ATOM_SHARED, __VA_ARGS__)
#define ATOM_PRODUCT_OF_REGISTERS(...) ATOM_PRODUCT_OF(ATOM_REGISTERS, __VA_ARGS__)

// d[64, kColumns] = a[64, 32] b[kColumns, 32]^T in FP8, plus d itself if `keeps`.
template <int kColumns>
__device__ __forceinline__ void multiply_codes(float (&d)[kColumns / 2],
                                               uint64_t a,
                                               uint64_t b,
                                               bool keeps) {
  if constexpr (kColumns == 16) {
    ATOM_PRODUCT("16", ATOM_NAMES8, "%8", "%9", "%10", ATOM_D8(0));
  } else if constexpr (kColumns == 32) {
    ATOM_PRODUCT("32", ATOM_NAMES16, "%16", "%17", "%18", ATOM_D16(0));
  } else if constexpr (kColumns == 48) {
    ATOM_PRODUCT("48", ATOM_NAMES24, "%24", "%25", "%26", ATOM_D16(0), ATOM_D8(16));
  } else if constexpr (kColumns == 64) {
    ATOM_PRODUCT("64", ATOM_NAMES32, "%32", "%33", "%34", ATOM_D32(0));
  } else if constexpr (kColumns == 80) {
    ATOM_PRODUCT("80", ATOM_NAMES40, "%40", "%41", "%42", ATOM_D32(0), ATOM_D8(32));
  } else if constexpr (kColumns == 96) {
    ATOM_PRODUCT("96", ATOM_NAMES48, "%48", "%49", "%50", ATOM_D32(0), ATOM_D16(32));
  } else if constexpr (kColumns == 112) {
    ATOM_PRODUCT("112", ATOM_NAMES56, "%56", "%57", "%58", ATOM_D32(0), ATOM_D16(32), ATOM_D8(48));
  } else {
    static_assert(kColumns == 128);
    ATOM_PRODUCT("128", ATOM_NAMES64, "%64", "%65", "%66", ATOM_D32(0), ATOM_D32(32));
  }
}

// The same with a in registers: of a lane (g, t) = (lane / 4, lane % 4) of warp w a[0] has columns
// 4 t to 4 t + 3 of row 16 w + g, a[1] of eight rows further, a[2] and a[3] 16 columns further.
template <int kColumns>
__device__ __forceinline__ void multiply_codes(float (&d)[kColumns / 2],
                                               const uint32_t (&a)[4],
                                               uint64_t b,
                                               bool keeps) {
  if constexpr (kColumns == 80) {
    ATOM_PRODUCT_OF_REGISTERS(
        "80", ATOM_NAMES40, "{%40, %41, %42, %43}", "%44", "%45", ATOM_D32(0), ATOM_D8(32));
  } else if constexpr (kColumns == 128) {
    ATOM_PRODUCT_OF_REGISTERS(
        "128", ATOM_NAMES64, "{%64, %65, %66, %67}", "%68", "%69", ATOM_D32(0), ATOM_D32(32));
  } else if constexpr (kColumns == 144) {
    ATOM_PRODUCT_OF_REGISTERS("144",
                              ATOM_NAMES72,
                              "{%72, %73, %74, %75}",
                              "%76",
                              "%77",
                              ATOM_D32(0),
                              ATOM_D32(32),
                              ATOM_D8(64));
  } else {
    static_assert(kColumns == 176);
    ATOM_PRODUCT_OF_REGISTERS("176",
                              ATOM_NAMES88,
                              "{%88, %89, %90, %91}",
                              "%92",
                              "%93",
                              ATOM_D32(0),
                              ATOM_D32(32),
                              ATOM_D16(64),
                              ATOM_D8(80));
  }
}

#undef ATOM_D8
#undef ATOM_D16
#undef ATOM_D32
#undef ATOM_NAMES8
#undef ATOM_NAMES16
#undef ATOM_NAMES24
#undef ATOM_NAMES32
#undef ATOM_NAMES40
#undef ATOM_NAMES48
#undef ATOM_NAMES56
#undef ATOM_NAMES64
#undef ATOM_NAMES72
#undef ATOM_NAMES80
#undef ATOM_NAMES88
#undef ATOM_PRODUCT
#undef ATOM_PRODUCT_OF_REGISTERS
#undef ATOM_PRODUCT_OF
#undef ATOM_SHARED
#undef ATOM_REGISTERS

}  // namespace atom::ops::device
