// Inside head_linear on Hopper: what kernels of all types of weights share.
#pragma once

#include "ops/attention/device/mma.cuh"
#include "ops/device/async_copy.cuh"
#include "ops/head_linear/head_linear_sm90.h"

namespace atom::ops::head_linear_device {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kMaxIn = 768;

// In rows of odd tokens chunks of 16 bytes are exchanged with those kSwap further, so that eight
// lanes meet all banks.
template <int kSwap>
__device__ inline uint32_t token_offset(int token, int chunk, int row_bytes) {
  return token * row_bytes + ((chunk ^ ((token & 1) * kSwap)) << 4);
}

template <int kTokens, int kSwap>
__device__ inline void load_tokens(const HeadLinearArgs& args,
                                   int head,
                                   int64_t first_token,
                                   uint32_t target) {
  const int row_bytes = args.in_features * 2, chunks = row_bytes / 16;
  const char* x =
      static_cast<const char*>(args.x) + (first_token * args.x_stride + head * args.x_pitch) * 2;
  for (int i = threadIdx.x; i < kTokens * chunks; i += kThreads) {
    const int token = i / chunks, chunk = i % chunks;
    const bool exists = first_token + token < args.num_tokens;
    attention_device::copy_async(target + token_offset<kSwap>(token, chunk, row_bytes),
                                 x + (exists ? token * args.x_stride * 2 + chunk * 16 : 0),
                                 exists);
  }
  attention_device::commit_copies();
}

// `y` is the block's first output of token 0.
template <typename T, int kTiles, int kRowTiles>
__device__ inline void store_sums(const HeadLinearArgs& args,
                                  const float (&sums)[kRowTiles][kTiles][4],
                                  int64_t first_token,
                                  T* y) {
  using attention_device::pack;
  using attention_device::transpose_matrix;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  // Transposed a thread has, of token g of each eight, rows 2c and 2c + 1 of each eight.
  y += warp * kRowTiles * 16 + c * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int64_t token = first_token + n * 8 + g;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t bits = transpose_matrix(pack<T>(sums[m][n][j * 2], sums[m][n][j * 2 + 1]));
        if (token < args.num_tokens) {
          *reinterpret_cast<uint32_t*>(y + token * args.y_stride + m * 16 + j * 8) = bits;
        }
      }
    }
  }
}

}  // namespace atom::ops::head_linear_device
