// Inside attention: warpgroup matrix instructions and tensor copies (sm_90a).
//
// Tiles lie in shared memory as pieces of 8 rows of 64 elements (128 bytes), 128-byte swizzled, at
// multiples of 1024 bytes.
#pragma once

#include <type_traits>

#include "ops/device/matrix_units.cuh"

namespace atom::ops::attention_device {

using device::arrive;
using device::arrive_expecting;
using device::begin_products;
using device::commit_products;
using device::init_barrier;
using device::pin;
using device::wait_for;
using device::wait_for_products;

// Box of `map` at (x, y, z) to shared memory, with its bytes counted on `barrier`.
__device__ __forceinline__ void copy_box(
    uint32_t target, const CUtensorMap* map, int x, int y, int z, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5}], [%2];" ::"r"(target),
      "l"(map),
      "r"(barrier),
      "r"(x),
      "r"(y),
      "r"(z)
      : "memory");
}

// Likewise of a map with five dimensions, at (0, 0, 0, z, w).
__device__ __forceinline__ void copy_rows(
    uint32_t target, const CUtensorMap* map, int z, int w, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %3, %3, %4, %5}], [%2];" ::"r"(target),
      "l"(map),
      "r"(barrier),
      "r"(0),
      "r"(z),
      "r"(w)
      : "memory");
}

// Waits for kThreads to come, some of which need not wait.
template <int kThreads>
__device__ __forceinline__ void named_barrier_wait(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

template <int kThreads>
__device__ __forceinline__ void named_barrier_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// A matrix in shared memory, for a product: the low word of its descriptor, the same in all lanes
// of a warp. Adding `bytes_of_matrix(n)` moves it by n bytes. The high word says how far pieces are
// apart from eight rows to the next, and that they are 128-byte swizzled.
__host__ __device__ constexpr uint32_t matrix_high_word(uint32_t rows_bytes) {
  return (1u << 30) | (rows_bytes >> 4);
}

__host__ __device__ constexpr uint32_t bytes_of_matrix(uint32_t bytes) {
  return bytes >> 4;
}

// `columns_bytes`, from 64 columns to the next, matters when a piece's row is along the product's
// columns; pieces along its inner dimension are addressed one by one.
__device__ __forceinline__ uint32_t shared_matrix(uint32_t address, uint32_t columns_bytes) {
  const uint32_t word = bytes_of_matrix(address) | (bytes_of_matrix(columns_bytes) << 16);
  return __shfl_sync(0xffffffffu, word, 0);  // tells the compiler that it is uniform
}

#define ATOM_D8(d, i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATOM_D32(d, i) ATOM_D8(d, i), ATOM_D8(d, i + 8), ATOM_D8(d, i + 16), ATOM_D8(d, i + 24)
#define ATOM_D64(d, i) ATOM_D32(d, i), ATOM_D32(d, i + 32)
#define ATOM_D128(d, i) ATOM_D64(d, i), ATOM_D64(d, i + 64)

#define ATOM_NAMES32                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ATOM_NAMES64                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ATOM_NAMES128                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define ATOM_SHARED_PRODUCT64(type)                                                 \
  asm volatile(                                                                     \
      "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %35, 0;\n"                 \
      "mov.b64 a, {%32, %34};\nmov.b64 b, {%33, %36};\n"                            \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" ATOM_NAMES32 \
      "}, a, b, p, 1, 1, 0, 0;\n}"                                                  \
      : ATOM_D32(d, 0)                                                              \
      : "r"(a), "r"(b), "n"(kHighWordA), "r"(static_cast<int>(accumulate)), "n"(kHighWordB))
#define ATOM_SHARED_PRODUCT128(type)                                                 \
  asm volatile(                                                                      \
      "{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %67, 0;\n"                  \
      "mov.b64 a, {%64, %66};\nmov.b64 b, {%65, %68};\n"                             \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" ATOM_NAMES64 \
      "}, a, b, p, 1, 1, 0, 0;\n}"                                                   \
      : ATOM_D64(d, 0)                                                               \
      : "r"(a), "r"(b), "n"(kHighWordA), "r"(static_cast<int>(accumulate)), "n"(kHighWordB))
#define ATOM_REGISTER_PRODUCT64(type)                                                    \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %38, 0;\nmov.b64 b, {%36, %37};\n" \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" ATOM_NAMES32      \
      "}, {%32, %33, %34, %35}, b, p, 1, 1, 1;\n}"                                       \
      : ATOM_D32(d, 0)                                                                   \
      : "r"(a[0]),                                                                       \
        "r"(a[1]),                                                                       \
        "r"(a[2]),                                                                       \
        "r"(a[3]),                                                                       \
        "r"(b),                                                                          \
        "n"(kHighWordB),                                                                 \
        "r"(static_cast<int>(accumulate)))
#define ATOM_REGISTER_PRODUCT128(type)                                                   \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %70, 0;\nmov.b64 b, {%68, %69};\n" \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" ATOM_NAMES64     \
      "}, {%64, %65, %66, %67}, b, p, 1, 1, 1;\n}"                                       \
      : ATOM_D64(d, 0)                                                                   \
      : "r"(a[0]),                                                                       \
        "r"(a[1]),                                                                       \
        "r"(a[2]),                                                                       \
        "r"(a[3]),                                                                       \
        "r"(b),                                                                          \
        "n"(kHighWordB),                                                                 \
        "r"(static_cast<int>(accumulate)))
#define ATOM_REGISTER_PRODUCT256(type)                                                      \
  asm volatile(                                                                             \
      "{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %134, 0;\nmov.b64 b, {%132, %133};\n" \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" ATOM_NAMES128       \
      "}, {%128, %129, %130, %131}, b, p, 1, 1, 1;\n}"                                      \
      : ATOM_D128(d, 0)                                                                     \
      : "r"(a[0]),                                                                          \
        "r"(a[1]),                                                                          \
        "r"(a[2]),                                                                          \
        "r"(a[3]),                                                                          \
        "r"(b),                                                                             \
        "n"(kHighWordB),                                                                    \
        "r"(static_cast<int>(accumulate)))

// d[64, kColumns] (+)= a[64, 16] b[kColumns, 16]^T, both inner-contiguous, with so many bytes from
// eight rows to the next.
template <typename T, int kColumns, int kRowsBytesA, int kRowsBytesB>
__device__ __forceinline__ void product_of_shared(float (&d)[kColumns / 2],
                                                  uint32_t a,
                                                  uint32_t b,
                                                  bool accumulate) {
  constexpr uint32_t kHighWordA = matrix_high_word(kRowsBytesA);
  constexpr uint32_t kHighWordB = matrix_high_word(kRowsBytesB);
  constexpr bool kIsHalf = std::is_same_v<T, __half>;
  if constexpr (kColumns == 64 && kIsHalf) {
    ATOM_SHARED_PRODUCT64("f16");
  } else if constexpr (kColumns == 64) {
    ATOM_SHARED_PRODUCT64("bf16");
  } else if constexpr (kIsHalf) {
    static_assert(kColumns == 128);
    ATOM_SHARED_PRODUCT128("f16");
  } else {
    static_assert(kColumns == 128);
    ATOM_SHARED_PRODUCT128("bf16");
  }
}

// d[64, kColumns] (+)= a[64, 16] b[16, kColumns], b outer-contiguous.
template <typename T, int kColumns, int kRowsBytesB>
__device__ __forceinline__ void product_of_registers(float (&d)[kColumns / 2],
                                                     const uint32_t* a,
                                                     uint32_t b,
                                                     bool accumulate) {
  constexpr uint32_t kHighWordB = matrix_high_word(kRowsBytesB);
  constexpr bool kIsHalf = std::is_same_v<T, __half>;
  if constexpr (kColumns == 64 && kIsHalf) {
    ATOM_REGISTER_PRODUCT64("f16");
  } else if constexpr (kColumns == 64) {
    ATOM_REGISTER_PRODUCT64("bf16");
  } else if constexpr (kColumns == 128 && kIsHalf) {
    ATOM_REGISTER_PRODUCT128("f16");
  } else if constexpr (kColumns == 128) {
    ATOM_REGISTER_PRODUCT128("bf16");
  } else if constexpr (kIsHalf) {
    static_assert(kColumns == 256);
    ATOM_REGISTER_PRODUCT256("f16");
  } else {
    static_assert(kColumns == 256);
    ATOM_REGISTER_PRODUCT256("bf16");
  }
}

#undef ATOM_D8
#undef ATOM_D32
#undef ATOM_D64
#undef ATOM_D128
#undef ATOM_NAMES32
#undef ATOM_NAMES64
#undef ATOM_NAMES128
#undef ATOM_SHARED_PRODUCT64
#undef ATOM_SHARED_PRODUCT128
#undef ATOM_REGISTER_PRODUCT64
#undef ATOM_REGISTER_PRODUCT128
#undef ATOM_REGISTER_PRODUCT256

}  // namespace atom::ops::attention_device
