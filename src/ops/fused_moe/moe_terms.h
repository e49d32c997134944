// Inside fused_moe: few tokens of each expert in MXFP4, on Hopper. A code of E2M1 is one of E4M3
// with its bits elsewhere, so few instructions make of codes what the matrix units take, and its
// block's exponent is multiplied with a product of the block. x and what is between the matrices
// are sums of two numbers in E4M3 each, and so as exact as in bfloat16.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct MoeTermsScratch {
  // `choices`, `row_begins`, `tile_begins`, and `activated`, as x is.
  FusedMoeGpuScratch shared;
  void* x;                  // [2 terms][choices, hidden_size] E4M3, by expert
  float* x_scales;          // [choices], by expert
  float* activated_scales;  // [choices, moe_term_groups(intermediate_size)], by expert
  void* results;            // [choices, hidden_size] bfloat16, weighted
};

// Groups of 32 columns, in rows of whole vectors.
constexpr int64_t moe_term_groups(int64_t columns) {
  return (columns + 127) / 128 * 4;
}

bool fits_moe_terms(const FusedMoeGpuCall& call);
gpuError_t launch_moe_terms(const FusedMoeGpuCall& call,
                            const MoeTermsScratch& scratch,
                            gpuStream_t stream);

}  // namespace atom::ops
