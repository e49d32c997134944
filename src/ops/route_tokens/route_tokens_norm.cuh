// Inside route_tokens on Hopper: the norm before a router. Each block of the cluster normalizes all
// tokens in its shared memory, and one for each token leaves what others read of it.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/rms_norm/rms_norm_team.cuh"
#include "ops/route_tokens/route_tokens_kernels.h"

namespace atom::ops::device {

// Shared memory: rows of x, rows of the residual, the norm's weight.
class TokenNorm {
 public:
  static constexpr int kThreads = 512;
  static constexpr int kTokenThreads = kThreads / kMaxClusterTokens;
  static constexpr int kTokenWarps = kTokenThreads / kWarpSize;

  __device__ TokenNorm(const RouteTokensArgs& args, uint8_t* memory)
      : args_(args),
        memory_(memory),
        token_(static_cast<int>(threadIdx.x) / kTokenThreads),
        first_(static_cast<int>(threadIdx.x) % kTokenThreads * kVector) {}

  // Eight tokens' columns of a chunk lie in different banks.
  static __host__ __device__ int row_size(const RouteTokensArgs& args) {
    constexpr int kBanksSize = 128;
    return args.hidden_size * 2 / kBanksSize * kBanksSize + kBanksSize + kBanksSize / 2;
  }
  static __host__ __device__ int size(const RouteTokensArgs& args) {
    const int weight = args.hidden_size * (args.norm.has_float32_weight ? 4 : 2);
    return 2 * static_cast<int>(args.route.num_tokens) * row_size(args) + weight;
  }

  // Before the kernel before has ended.
  __device__ void load_weight() const {
    const int count = args_.hidden_size * (args_.norm.has_float32_weight ? 4 : 2) / kCopySize;
    for (int i = threadIdx.x; i < count; i += kThreads) {
      copy(weight() + i * kCopySize,
           static_cast<const uint8_t*>(args_.norm.weight) + i * kCopySize);
    }
    commit_copies();
  }

  // After it has ended: x in shared memory, and that of token `own` where args.x is.
  __device__ void run(int own, float (*scratch)[kTokenWarps]) const {
    const bool exists = token_ < args_.route.num_tokens;
    if (exists) load();
    commit_copies();
    wait_for_copies<0>();
    float squares = exists ? add() : 0;
    squares = reduce_lanes(squares, kWarpSize, Sum());
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    if (threadIdx.x % kWarpSize == 0) scratch[token_][warp % kTokenWarps] = squares;
    __syncthreads();
    if (exists) normalise(scratch[token_][0] + scratch[token_][1], token_ == own);
    __syncthreads();
  }

  // After all blocks have read the residual.
  __device__ void store_residual(int own) const {
    for (int i = threadIdx.x * kVector; i < args_.hidden_size; i += kThreads * kVector) {
      *reinterpret_cast<uint4*>(residual() + own * args_.norm.residual_stride + i) =
          *at(residual_row(own), i);
    }
  }

  // x of a token, in shared memory.
  __device__ const uint4* vector_of(int token, int column) const { return at(row(token), column); }

 private:
  static constexpr int kCopySize = 16, kVector = 8;

  __device__ uint8_t* row(int token) const { return memory_ + token * row_size(args_); }
  __device__ uint8_t* residual_row(int token) const {
    return row(static_cast<int>(args_.route.num_tokens) + token);
  }
  __device__ uint8_t* weight() const { return row(2 * static_cast<int>(args_.route.num_tokens)); }
  __device__ BFloat16* residual() const { return static_cast<BFloat16*>(args_.norm.residual); }
  static __device__ uint4* at(uint8_t* row, int column) {
    return reinterpret_cast<uint4*>(row + column * 2);
  }
  static __device__ void copy(uint8_t* target, const void* source) {
    copy_16(static_cast<uint32_t>(__cvta_generic_to_shared(target)), source, true, keep_policy());
  }

  // This thread's vectors: visit(column).
  template <typename Visit>
  __device__ void for_vectors(Visit&& visit) const {
    for (int i = first_; i < args_.hidden_size; i += kTokenThreads * kVector) visit(i);
  }

  __device__ void load() const {
    const auto* update =
        static_cast<const BFloat16*>(args_.norm.update) + token_ * args_.norm.update_stride;
    const BFloat16* before = residual() + token_ * args_.norm.residual_stride;
    for_vectors([&](int i) {
      copy(row(token_) + i * 2, update + i);
      copy(residual_row(token_) + i * 2, before + i);
    });
  }

  // The sum of the squares of what the residual becomes.
  __device__ float add() const {
    float squares = 0;
    for_vectors([&](int i) {
      uint4* const sum = at(residual_row(token_), i);
      *sum = rms_norm::sum_of<BFloat16>(*at(row(token_), i), *sum);
      float values[kVector];
      to_floats<BFloat16>(*sum, values);
#pragma unroll
      for (int j = 0; j < kVector; ++j) squares = fmaf(values[j], values[j], squares);
    });
    return squares;
  }

  __device__ void normalise(float squares, bool is_own) const {
    const float mean = squares / static_cast<float>(args_.hidden_size);
    const float scale = 1.0f / sqrtf(mean + args_.norm.eps);
    for_vectors([&](int i) {
      const uint4 sum = *at(residual_row(token_), i);
      uint4 x;
      if (args_.norm.has_float32_weight) {
        x = rms_norm::normalised<BFloat16, float>(sum, scale, weight_at<float>(i));
      } else {
        x = rms_norm::normalised<BFloat16, BFloat16>(sum, scale, weight_at<BFloat16>(i));
      }
      *at(row(token_), i) = x;
      if (!is_own) return;
      *reinterpret_cast<uint4*>(static_cast<BFloat16*>(args_.x) + token_ * args_.x_stride + i) = x;
    });
  }

  template <typename W>
  __device__ Pack<W, kVector> weight_at(int column) const {
    return *reinterpret_cast<const Pack<W, kVector>*>(weight() + column * sizeof(W));
  }

  const RouteTokensArgs& args_;
  uint8_t* const memory_;
  const int token_, first_;
};

}  // namespace atom::ops::device
