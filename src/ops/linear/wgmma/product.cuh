// Inside the linear for many rows on Hopper: the product that it takes.
#pragma once

#include <type_traits>

#include "ops/device/elements.cuh"
#include "ops/device/matrix_units.cuh"

namespace atom::ops::device::wgmma {

#define ATOM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATOM_D16(i) ATOM_D4(i), ATOM_D4(i + 4), ATOM_D4(i + 8), ATOM_D4(i + 12)
#define ATOM_D64(i) ATOM_D16(i), ATOM_D16(i + 16), ATOM_D16(i + 32), ATOM_D16(i + 48)
#define ATOM_PRODUCT(type)                                                       \
  asm volatile(                                                                  \
      "{\n.reg .pred keeps;\nsetp.ne.b32 keeps, %130, 0;\n"                      \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type               \
      " {"                                                                       \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                       \
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "             \
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "             \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "             \
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "             \
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "             \
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "     \
      "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
      "%120, %121, %122, %123, %124, %125, %126, %127"                           \
      "}, %128, %129, keeps, 1, 1, 0, 0;\n}"                                     \
      : ATOM_D64(0), ATOM_D64(64)                                                \
      : "l"(a), "l"(b), "r"(static_cast<int>(keeps)))

// d[64, 256] = a[64, 16] b[256, 16]^T, plus d itself if `keeps`.
template <typename T>
__device__ inline void multiply_by_256(float (&d)[128], uint64_t a, uint64_t b, bool keeps) {
  if constexpr (std::is_same_v<T, Half>) {
    ATOM_PRODUCT("f16");
  } else {
    ATOM_PRODUCT("bf16");
  }
}

#undef ATOM_D4
#undef ATOM_D16
#undef ATOM_D64
#undef ATOM_PRODUCT

}  // namespace atom::ops::device::wgmma
