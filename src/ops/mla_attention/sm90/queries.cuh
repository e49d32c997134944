// Inside latent attention for Hopper: queries for products with a cache of FP8.
#pragma once

#include "ops/mla_attention/sm90/tile.cuh"

namespace atom::ops::mla_device {

// Rows that a thread has a part of.
constexpr int kQueryPasses = kRows / 16;

__device__ __forceinline__ void load_query_chunks(uint32_t source, uint4 (&chunks)[kQueryPasses]) {
#pragma unroll
  for (int pass = 0; pass < kQueryPasses; ++pass) {
    chunks[pass] = device::load_shared(source + pass * 2 * kEightRowsBytes);
  }
}

// The powers of two that bring the largest elements of rows to float16's largest exponent. Eight
// threads have a row, a chunk of each panel.
__device__ __forceinline__ void find_query_factors(uint32_t first, float (&factors)[kQueryPasses]) {
  constexpr int kBias = 127, kLargest = kBias + 15, kMost = kBias + 100;
  uint32_t tops[kQueryPasses] = {};
#pragma unroll 1
  for (int panel = 0; panel < kPanels; ++panel) {
    uint4 chunks[kQueryPasses];
    load_query_chunks(first + panel * kPanelBytes, chunks);
#pragma unroll
    for (int pass = 0; pass < kQueryPasses; ++pass) {
      const uint4& chunk = chunks[pass];
      for (const uint32_t pair : {chunk.x, chunk.y, chunk.z, chunk.w}) {
        tops[pass] = __vmaxu2(tops[pass], pair & 0x7fff7fffu);
      }
    }
  }
#pragma unroll
  for (int pass = 0; pass < kQueryPasses; ++pass) {
    uint32_t top = max(tops[pass] >> 16, tops[pass] & 0xffffu);
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2) {
      top = max(top, __shfl_xor_sync(kAllLanes, top, distance));
    }
    const int exponent = static_cast<int>(top >> 7);
    factors[pass] = __uint_as_float(min(kBias + kLargest - exponent, kMost) << 23);
  }
}

__device__ __forceinline__ void multiply_queries(uint32_t first,
                                                 const float (&factors)[kQueryPasses]) {
#pragma unroll 1
  for (int panel = 0; panel < kPanels; ++panel) {
    const uint32_t target = first + panel * kPanelBytes;
    uint4 chunks[kQueryPasses];
    load_query_chunks(target, chunks);
#pragma unroll
    for (int pass = 0; pass < kQueryPasses; ++pass) {
      const auto scaled = [factor = factors[pass]](uint32_t pair) {
        return attention_device::pack<__half>(__uint_as_float(pair << 16) * factor,
                                              __uint_as_float(pair & 0xffff0000u) * factor);
      };
      const uint4& chunk = chunks[pass];
      asm volatile(
          "st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(target + pass * 2 * kEightRowsBytes),
          "r"(scaled(chunk.x)),
          "r"(scaled(chunk.y)),
          "r"(scaled(chunk.z)),
          "r"(scaled(chunk.w))
          : "memory");
    }
  }
}

// Queries of bfloat16 that this thread has copied, a chunk of each panel in every 16th row, become
// float16, multiplied by a power of two for each row. What is lost of a small element is 2^-40 of
// the row's largest.
__device__ __forceinline__ void scale_queries(const Buffers& buffers, int thread) {
  device::commit_copies();
  device::wait_for_copies<0>();
  const int row = thread / 8, chunk = thread % 8;
  const uint32_t first = buffers.queries() + panel_offset(row, chunk);
  float factors[kQueryPasses];
  find_query_factors(first, factors);
  if (chunk == 0) {
#pragma unroll
    for (int pass = 0; pass < kQueryPasses; ++pass) {
      // The reciprocal of a power of two.
      buffers.query_scales()[pass * 16 + row] =
          __uint_as_float((254u << 23) - __float_as_uint(factors[pass]));
    }
  }
  multiply_queries(first, factors);
}

}  // namespace atom::ops::mla_device
