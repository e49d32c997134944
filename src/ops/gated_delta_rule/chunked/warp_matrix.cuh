// Inside the chunked gated delta rule: bfloat16 matrices by warps and warpgroups (sm_90a).
#pragma once

#include <cstdint>

#include "ops/device/matrix_loads.cuh"
#include "ops/device/matrix_units.cuh"

namespace atom::ops::delta_device {

// Two floats, each as the sum of two bfloat16 numbers; the first of the pair in the low half.
__device__ inline uint32_t pair_of(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
// `x` and `y` become what the pair leaves of them.
__device__ inline uint32_t take_pair(float& x, float& y) {
  const uint32_t bits = pair_of(x, y);
  x -= __uint_as_float(bits << 16);
  y -= __uint_as_float(bits & 0xffff0000u);
  return bits;
}
__device__ inline void split(float x, float y, uint32_t& high, uint32_t& low) {
  high = take_pair(x, y);
  low = pair_of(x, y);
}

using device::load_matrices;
using device::load_matrices_transposed;
__device__ inline void store_matrices_transposed(uint32_t address, const uint32_t (&m)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(m[0]),
      "r"(m[1]),
      "r"(m[2]),
      "r"(m[3])
      : "memory");
}

// d[16, 8] += a[16, 16] b[16, 8]
__device__ inline void multiply_add(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- products of a warpgroup, whose left factor is in its registers
// ------------------------------

// The low word of the descriptor of a matrix of rows of 128 bytes, swizzled, at a multiple of 1024
// bytes; `panel_bytes` from 64 columns to the next where rows are along the product's columns.
// Adding bytes_of_matrix(n) moves it by n bytes.
__host__ __device__ constexpr uint32_t bytes_of_matrix(uint32_t bytes) {
  return bytes >> 4;
}
__device__ inline uint32_t shared_matrix(uint32_t address, uint32_t panel_bytes = 0) {
  const uint32_t word = bytes_of_matrix(address) | bytes_of_matrix(panel_bytes) << 16;
  return __shfl_sync(0xffffffffu, word, 0);  // tells the compiler that it is uniform
}

#define ATOM_D8(d, i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATOM_D32(d, i) ATOM_D8(d, i), ATOM_D8(d, i + 8), ATOM_D8(d, i + 16), ATOM_D8(d, i + 24)
#define ATOM_D64(d, i) ATOM_D32(d, i), ATOM_D32(d, i + 32)
#define ATOM_N32                                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ATOM_N64                                                                       \
  ATOM_N32                                                                             \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define ATOM_PRODUCT(columns, names, outputs, a0, a1, a2, a3, low, high, add, transposed)     \
  asm volatile("{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, " add ", 0;\nmov.b64 b, {" low \
               ", " high "};\nwgmma.mma_async.sync.aligned.m64n" columns                      \
               "k16.f32.bf16.bf16 {" names "}, {" a0 ", " a1 ", " a2 ", " a3                  \
               "}, b, p, 1, 1, " transposed ";\n}"                                            \
               : outputs                                                                      \
               : "r"(a[0]),                                                                   \
                 "r"(a[1]),                                                                   \
                 "r"(a[2]),                                                                   \
                 "r"(a[3]),                                                                   \
                 "r"(b),                                                                      \
                 "n"(kHighWord),                                                              \
                 "r"(static_cast<int>(accumulate)))

// Eight rows are 1024 bytes apart from the next; 128-byte swizzle.
constexpr uint32_t kHighWord = 1u << 30 | 1024 >> 4;

// d[64, 64] (+)= a[64, 16] b[64, 16]^T.
__device__ __forceinline__ void product(float (&d)[32],
                                        const uint32_t* a,
                                        uint32_t b,
                                        bool accumulate) {
  ATOM_PRODUCT(
      "64", ATOM_N32, ATOM_D32(d, 0), "%32", "%33", "%34", "%35", "%36", "%37", "%38", "0");
}

// d[64, 128] += a[64, 16] b[16, 128], rows of b along d's columns.
__device__ __forceinline__ void product_by_rows(float (&d)[64], const uint32_t* a, uint32_t b) {
  constexpr bool accumulate = true;
  ATOM_PRODUCT(
      "128", ATOM_N64, ATOM_D64(d, 0), "%64", "%65", "%66", "%67", "%68", "%69", "%70", "1");
}

#undef ATOM_D8
#undef ATOM_D32
#undef ATOM_D64
#undef ATOM_N32
#undef ATOM_N64
#undef ATOM_PRODUCT

}  // namespace atom::ops::delta_device
