// Inside the linear for few rows on Hopper: products of the sizes that it takes.
#pragma once

#include <type_traits>

#include "ops/device/elements.cuh"
#include "ops/device/matrix_units.cuh"

namespace atom::ops::device {

#define ATOM_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATOM_D8(d, i) ATOM_D4(d, i), ATOM_D4(d, i + 4)
#define ATOM_D16(d, i) ATOM_D8(d, i), ATOM_D8(d, i + 8)
#define ATOM_D32(d, i) ATOM_D16(d, i), ATOM_D16(d, i + 16)
#define ATOM_NAMES4 "%0, %1, %2, %3"
#define ATOM_NAMES8 ATOM_NAMES4 ", %4, %5, %6, %7"
#define ATOM_NAMES16 ATOM_NAMES8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ATOM_NAMES32                                                         \
  ATOM_NAMES16                                                               \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
  "%30, %31"

// `operands`: where a, b and `keeps` stand behind the sums.
#define ATOM_PRODUCT(shape, type, options, names, a_name, b_name, keeps_name, ...)                 \
  asm volatile("{\n.reg .pred keeps;\nsetp.ne.b32 keeps, " keeps_name                              \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" names "}, " a_name \
               ", " b_name ", keeps, 1, 1" options ";\n}"                                          \
               : __VA_ARGS__                                                                       \
               : "l"(a), "l"(b), "r"(static_cast<int>(keeps)))

#define ATOM_PRODUCT_OF(depth, type, options)                                                   \
  if constexpr (kColumns == 8) {                                                                \
    ATOM_PRODUCT("m64n8" depth, type, options, ATOM_NAMES4, "%4", "%5", "%6", ATOM_D4(d, 0));   \
  } else if constexpr (kColumns == 16) {                                                        \
    ATOM_PRODUCT("m64n16" depth, type, options, ATOM_NAMES8, "%8", "%9", "%10", ATOM_D8(d, 0)); \
  } else if constexpr (kColumns == 32) {                                                        \
    ATOM_PRODUCT(                                                                               \
        "m64n32" depth, type, options, ATOM_NAMES16, "%16", "%17", "%18", ATOM_D16(d, 0));      \
  } else {                                                                                      \
    static_assert(kColumns == 64);                                                              \
    ATOM_PRODUCT(                                                                               \
        "m64n64" depth, type, options, ATOM_NAMES32, "%32", "%33", "%34", ATOM_D32(d, 0));      \
  }

// d[64, kColumns] = a[64, 32 bytes] b[kColumns, 32 bytes]^T, plus d itself if `keeps`.
template <typename T, int kColumns>
__device__ inline void multiply(float (&d)[kColumns / 2], uint64_t a, uint64_t b, bool keeps) {
  if constexpr (std::is_same_v<T, Float8>) {
    ATOM_PRODUCT_OF("k32", "e4m3", "")
  } else if constexpr (std::is_same_v<T, Half>) {
    ATOM_PRODUCT_OF("k16", "f16", ", 0, 0")
  } else {
    ATOM_PRODUCT_OF("k16", "bf16", ", 0, 0")
  }
}

#undef ATOM_D4
#undef ATOM_D8
#undef ATOM_D16
#undef ATOM_D32
#undef ATOM_NAMES4
#undef ATOM_NAMES8
#undef ATOM_NAMES16
#undef ATOM_NAMES32
#undef ATOM_PRODUCT
#undef ATOM_PRODUCT_OF

}  // namespace atom::ops::device
