// Inside fused_moe: one token by experts on Hopper, in one kernel. Nothing but memory and latency
// counts then: every multiprocessor streams its share of both matrices, which are 8 or 16 rows at a
// time, and all wait for each other once, when what lies between the matrices is known. Few tokens,
// whose experts are rarely the same, are as many of that side by side, each on an even part of the
// multiprocessors.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kMaxMoeOneTokens = 4;

// Words that count blocks, in front of one for each value between the matrices.
constexpr int kNumMoeOneCounters = 32;
constexpr int64_t num_moe_one_words(int64_t num_tokens, int64_t top_k, int64_t intermediate_size) {
  return kNumMoeOneCounters + num_tokens * top_k * intermediate_size;
}

struct MoeOneScratch {
  int32_t* words;  // num_moe_one_words() that are zero, and are so again behind the kernel
};

// Up to kMaxMoeOneTokens, x in bfloat16, matrices in FP8 with a scale for each row or for each 128
// x 128 values, sizes that are multiples of 128; those of all experts in one tensor.
bool fits_moe_one(const FusedMoeGpuCall& call);

// May start before the kernel before it ends. The kernel's blocks must all fit the card at once:
// nothing else that waits for other kernels runs there meanwhile.
gpuError_t launch_moe_one(const FusedMoeGpuCall& call,
                          const MoeOneScratch& scratch,
                          gpuStream_t stream);

struct MoeOneRowsScratch {
  void* activated;    // [num_tokens, top_k, intermediate_size] of bfloat16
  int32_t* counters;  // two of each token that are zero, and are so again behind the kernel
};

// Up to kMaxMoeOneTokens of up to 8 choices, x in bfloat16. Matrices in bfloat16 of up to 4096
// columns, multiples of 64, or in MXFP4 of up to 3072, multiples of 32.
bool fits_moe_one_rows(const FusedMoeGpuCall& call);

// As launch_moe_one.
gpuError_t launch_moe_one_rows(const FusedMoeGpuCall& call,
                               const MoeOneRowsScratch& scratch,
                               gpuStream_t stream);

struct MoeOneImagesScratch {
  float* gates;  // [num_tokens, 4, top_k, 2 intermediate_size]: parts of sums
  float* downs;  // [num_tokens, 8, hidden_size], likewise
  // [num_tokens, num_moe_one_images_counters()] that are zero, and are so again behind the kernel.
  int32_t* counters;
};

constexpr int64_t moe_one_gate_parts_size(int64_t top_k, int64_t intermediate_size) {
  return 4 * top_k * 2 * intermediate_size;
}
constexpr int64_t moe_one_down_parts_size(int64_t hidden_size) {
  return 8 * hidden_size;
}
constexpr int num_moe_one_images_counters(int hidden_size) {
  return 2 + hidden_size / 64;
}

// Up to kMaxMoeOneTokens of up to 8 choices, x in bfloat16, matrices in MXFP4 as images.
bool fits_moe_one_images(const FusedMoeGpuCall& call);

// As launch_moe_one.
gpuError_t launch_moe_one_images(const FusedMoeGpuCall& call,
                                 const MoeOneImagesScratch& scratch,
                                 gpuStream_t stream);

}  // namespace atom::ops
