// Inside the linear in FP8 with scales of groups on Hopper: the products that it takes.
#pragma once

#include "ops/linear/skinny/wgmma.cuh"

namespace atom::ops::device::blocks {

#define ATOM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATOM_D8(i) ATOM_D4(i), ATOM_D4(i + 4)
#define ATOM_D16(i) ATOM_D4(i), ATOM_D4(i + 4), ATOM_D4(i + 8), ATOM_D4(i + 12)
#define ATOM_D32(i) ATOM_D16(i), ATOM_D16(i + 16)
#define ATOM_NAMES20                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19"
#define ATOM_NAMES24 ATOM_NAMES20 ", %20, %21, %22, %23"
#define ATOM_NAMES48                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define ATOM_NAMES64 \
  ATOM_NAMES48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ATOM_NAMES96                                                                   \
  ATOM_NAMES64                                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

// The names of a, b and `keeps` are those behind the sums.
#define ATOM_FLOAT8_PRODUCT(shape, names, a_name, b_name, keeps_name, ...)                       \
  asm volatile("{\n.reg .pred keeps;\nsetp.ne.b32 keeps, " keeps_name                            \
               ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32.e4m3.e4m3 {" names "}, " a_name \
               ", " b_name ", keeps, 1, 1;\n}"                                                   \
               : __VA_ARGS__                                                                     \
               : "l"(a), "l"(b), "r"(static_cast<int>(keeps)))

// d[64, kColumns] = a[64, 32] b[kColumns, 32]^T in FP8, plus d itself if `keeps`.
template <int kColumns>
__device__ inline void multiply_float8(float (&d)[kColumns / 2],
                                       uint64_t a,
                                       uint64_t b,
                                       bool keeps) {
  if constexpr (kColumns == 32 || kColumns == 64) {
    multiply<Float8, kColumns>(d, a, b, keeps);
  } else if constexpr (kColumns == 40) {
    ATOM_FLOAT8_PRODUCT("m64n40k32", ATOM_NAMES20, "%20", "%21", "%22", ATOM_D16(0), ATOM_D4(16));
  } else if constexpr (kColumns == 48) {
    ATOM_FLOAT8_PRODUCT("m64n48k32", ATOM_NAMES24, "%24", "%25", "%26", ATOM_D16(0), ATOM_D8(16));
  } else if constexpr (kColumns == 96) {
    ATOM_FLOAT8_PRODUCT(
        "m64n96k32", ATOM_NAMES48, "%48", "%49", "%50", ATOM_D16(0), ATOM_D16(16), ATOM_D16(32));
  } else if constexpr (kColumns == 128) {
    ATOM_FLOAT8_PRODUCT("m64n128k32", ATOM_NAMES64, "%64", "%65", "%66", ATOM_D32(0), ATOM_D32(32));
  } else {
    static_assert(kColumns == 192);
    ATOM_FLOAT8_PRODUCT(
        "m64n192k32", ATOM_NAMES96, "%96", "%97", "%98", ATOM_D32(0), ATOM_D32(32), ATOM_D32(64));
  }
}

#undef ATOM_D4
#undef ATOM_D8
#undef ATOM_D16
#undef ATOM_D32
#undef ATOM_NAMES20
#undef ATOM_NAMES24
#undef ATOM_NAMES48
#undef ATOM_NAMES64
#undef ATOM_NAMES96
#undef ATOM_FLOAT8_PRODUCT

}  // namespace atom::ops::device::blocks
