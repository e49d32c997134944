// Inside attention: warp-level instructions (sm_80) and the shared-memory layout of tiles.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "ops/device/matrix_loads.cuh"
#include "tensor/gpu_api.h"

namespace atom::ops::attention_device {

struct Float8E4m3 {
  uint8_t bits;
};

// A cache of 8-bit floats is expanded to float16, which holds each of them exactly.
template <typename T, typename KV>
using Compute = std::conditional_t<std::is_same_v<KV, Float8E4m3>, __half, T>;

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes, or writes zeros.
__device__ inline void copy_async(uint32_t target, const void* source, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target),
               "l"(source),
               "r"(valid ? 16 : 0)
               : "memory");
}

__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

using device::load_matrices;
using device::load_matrices_transposed;

__device__ inline uint32_t transpose_matrix(uint32_t m) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(m));
  return result;
}

// d[16, 8] += a[16, 16] b[16, 8]
template <typename T>
__device__ inline void multiply_add(float (&d)[4],
                                    const uint32_t (&a)[4],
                                    uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <typename T>
__device__ inline uint32_t pack(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
}

// Two elements of type From in the low and high half, as two of type To.
template <typename To, typename From>
__device__ inline uint32_t convert_pair(uint32_t bits) {
  if constexpr (std::is_same_v<To, From>) {
    return bits;
  } else {
    static_assert(std::is_same_v<To, __half> && std::is_same_v<From, gpu_bfloat16>);
    return pack<__half>(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
  }
}

// The float16 values of the 8-bit floats in bits 0 .. 7 and 8 .. 15, for devices without an
// instruction for it. Exponent and mantissa of e4m3 in the places of float16's are the value over
// 256, since the bias of e4m3's exponents is 8 less.
__device__ inline uint32_t expand_pair_by_bits(uint32_t bits) {
  constexpr uint32_t kSigns = 0x80008000u;
  const uint32_t codes = __byte_perm(bits, 0, 0x1404);
  const uint32_t small = (codes & ~kSigns) >> 1;
  const __half2 sizes = __hmul2(reinterpret_cast<const __half2&>(small), __float2half2_rn(256));
  // Only the code of NaN comes out above 448.
  const uint32_t nan = __hgt2_mask(sizes, __float2half2_rn(448));
  return reinterpret_cast<const uint32_t&>(sizes) | (codes & kSigns) | nan;
}

// The same by the fastest way of the device.
__device__ inline uint32_t expand_pair(uint32_t bits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  return expand_pair_by_bits(bits);
#else
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(bits), __NV_E4M3);
  return static_cast<uint32_t>(halves.x) | (static_cast<uint32_t>(halves.y) << 16);
#endif
}

template <typename T>
__device__ inline uint32_t expand_to(uint32_t bits) {
  const uint32_t halves = expand_pair(bits);
  if constexpr (std::is_same_v<T, __half>) {
    return halves;
  } else {
    const float2 floats = __half22float2(*reinterpret_cast<const __half2*>(&halves));
    return pack<T>(floats.x, floats.y);
  }
}

__device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Byte of 16-byte chunk `chunk` of row `row` in a tile, with chunks permuted so that the same chunk
// of eight consecutive rows lies in different banks.
template <int kRowBytes>
__device__ inline uint32_t tile_offset(int row, int chunk) {
  if constexpr (kRowBytes >= 128) {
    return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
  } else {
    static_assert(kRowBytes == 64);
    return row * kRowBytes + ((chunk ^ ((row >> 1) & 3)) << 4);
  }
}

}  // namespace atom::ops::attention_device
