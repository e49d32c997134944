// Inside the linear in FP8 with scales of groups on Hopper: the products that it takes.
#pragma once

#include "ops/linear/skinny/wgmma.cuh"

namespace atom::ops::device::blocks {

#define ATOM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATOM_D16(i) ATOM_D4(i), ATOM_D4(i + 4), ATOM_D4(i + 8), ATOM_D4(i + 12)

// d[64, kColumns] = a[64, 32] b[kColumns, 32]^T in FP8, plus d itself if `keeps`.
template <int kColumns>
__device__ inline void multiply_float8(float (&d)[kColumns / 2],
                                       uint64_t a,
                                       uint64_t b,
                                       bool keeps) {
  if constexpr (kColumns == 64) {
    multiply<Float8, 64>(d, a, b, keeps);
  } else {
    static_assert(kColumns == 128);
    asm volatile(
        "{\n.reg .pred keeps;\nsetp.ne.b32 keeps, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, keeps, 1, 1;\n}"
        : ATOM_D16(0), ATOM_D16(16), ATOM_D16(32), ATOM_D16(48)
        : "l"(a), "l"(b), "r"(static_cast<int>(keeps)));
  }
}

#undef ATOM_D4
#undef ATOM_D16

}  // namespace atom::ops::device::blocks
