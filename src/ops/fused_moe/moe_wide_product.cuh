// Inside fused_moe by wide tiles on Hopper: the products of a warpgroup in bfloat16 by 32 to 256
// tokens.
#pragma once

#include <cstdint>

namespace atom::ops::device::wide {

#define ATOM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATOM_D16(i) ATOM_D4(i), ATOM_D4(i + 4), ATOM_D4(i + 8), ATOM_D4(i + 12)
#define ATOM_D32(i) ATOM_D16(i), ATOM_D16(i + 16)
#define ATOM_D64(i) ATOM_D32(i), ATOM_D32(i + 32)
#define ATOM_NAMES16                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, " \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define ATOM_NAMES32                           \
  ATOM_NAMES16                                 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define ATOM_NAMES48                           \
  ATOM_NAMES32                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define ATOM_NAMES64                           \
  ATOM_NAMES48                                 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define ATOM_NAMES80                           \
  ATOM_NAMES64                                 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, " \
  "%72, %73, %74, %75, %76, %77, %78, %79"
#define ATOM_NAMES96                           \
  ATOM_NAMES80                                 \
  ", %80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define ATOM_NAMES112                              \
  ATOM_NAMES96                                     \
  ", %96, %97, %98, %99, %100, %101, %102, %103, " \
  "%104, %105, %106, %107, %108, %109, %110, %111"
#define ATOM_NAMES128                                  \
  ATOM_NAMES112                                        \
  ", %112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"

// `a`, `b` and `keeps`: where they stand behind the sums.
#define ATOM_PRODUCT(columns, names, a_name, b_name, keeps_name, ...)                        \
  asm volatile("{\n.reg .pred keeps;\nsetp.ne.b32 keeps, " keeps_name                        \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" names \
               "}, " a_name ", " b_name ", keeps, 1, 1, 0, 0;\n}"                            \
               : __VA_ARGS__                                                                 \
               : "l"(a), "l"(b), "r"(static_cast<int>(keeps)))

// d[64, kColumns] = a[64, 16] b[kColumns, 16]^T, plus d itself if `keeps`; more of d is left alone.
template <int kColumns>
__device__ inline void multiply(float (&d)[128], uint64_t a, uint64_t b, bool keeps) {
  if constexpr (kColumns == 32) {
    ATOM_PRODUCT("32", ATOM_NAMES16, "%16", "%17", "%18", ATOM_D16(0));
  } else if constexpr (kColumns == 64) {
    ATOM_PRODUCT("64", ATOM_NAMES32, "%32", "%33", "%34", ATOM_D32(0));
  } else if constexpr (kColumns == 96) {
    ATOM_PRODUCT("96", ATOM_NAMES48, "%48", "%49", "%50", ATOM_D32(0), ATOM_D16(32));
  } else if constexpr (kColumns == 128) {
    ATOM_PRODUCT("128", ATOM_NAMES64, "%64", "%65", "%66", ATOM_D64(0));
  } else if constexpr (kColumns == 160) {
    ATOM_PRODUCT("160", ATOM_NAMES80, "%80", "%81", "%82", ATOM_D64(0), ATOM_D16(64));
  } else if constexpr (kColumns == 192) {
    ATOM_PRODUCT("192", ATOM_NAMES96, "%96", "%97", "%98", ATOM_D64(0), ATOM_D32(64));
  } else if constexpr (kColumns == 224) {
    ATOM_PRODUCT(
        "224", ATOM_NAMES112, "%112", "%113", "%114", ATOM_D64(0), ATOM_D32(64), ATOM_D16(96));
  } else {
    static_assert(kColumns == 256);
    ATOM_PRODUCT("256", ATOM_NAMES128, "%128", "%129", "%130", ATOM_D64(0), ATOM_D64(64));
  }
}

#undef ATOM_D4
#undef ATOM_D16
#undef ATOM_D32
#undef ATOM_D64
#undef ATOM_NAMES16
#undef ATOM_NAMES32
#undef ATOM_NAMES48
#undef ATOM_NAMES64
#undef ATOM_NAMES80
#undef ATOM_NAMES96
#undef ATOM_NAMES112
#undef ATOM_NAMES128
#undef ATOM_PRODUCT

}  // namespace atom::ops::device::wide
