// Inside fused_moe: few tokens by experts in FP8 on Hopper, by one kernel. Its blocks quantize x,
// take tiles of the first matrix and then of the second from one list, so that the copies of the
// second's tiles are under way while the last of the first are multiplied, and add up the results
// of each token. Blocks wait for each other: all of them fit the card at once, and nothing else
// that waits so runs there meanwhile.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kMaxMoeSkinnyTokens = 64;
constexpr int kMaxMoeSkinnyChoices = 1024;
constexpr int kMaxMoeSkinnySize = 8192;  // of rows of x and of what is between the matrices
constexpr int kMoeSkinnyGroup = 128;     // columns of them that share a scale

// A group is an expert with up to so many of its tokens.
constexpr int kMaxMoeSkinnyColumns = 32;
constexpr int kMaxMoeSkinnyGroups = kMaxGpuExperts + kMaxMoeSkinnyChoices / kMaxMoeSkinnyColumns;

constexpr int kMoeSkinnyTile = 256;  // rows of a matrix that a block multiplies at a time

// By which blocks learn how far the others have come. All are zero between kernels.
struct MoeSkinnyCounters {
  int32_t rows, rows_passed;           // blocks that have quantized their tokens, that have seen it
  int32_t ready[kMaxMoeSkinnyGroups];  // tiles of a group that are activated
  int32_t passed[kMaxMoeSkinnyGroups];  // tiles that have seen it
  int32_t results[kMaxMoeSkinnyTokens][kMaxMoeSkinnySize / kMoeSkinnyTile];  // of a token and tile
};

// What lies between the parts. Rows are in the order of experts, those of one expert in the order
// of tokens; an expert's begin at a multiple of four.
struct MoeSkinnyScratch {
  MoeSkinnyCounters* counters;
  uint8_t *x, *activated;              // [rows, hidden_size], [rows, intermediate_size] codes
  float *x_scales, *activated_scales;  // [columns / 128, rows]
  float* results;                      // [choices, hidden_size], weighted
  int num_rows;
};

// `num_rows` for so many tokens.
int num_moe_skinny_rows(int num_tokens, int top_k, int num_experts);

// x in bfloat16, matrices in FP8 with a scale for each row or for each 128 x 128 values, sizes that
// are multiples of 128.
bool fits_moe_skinny(const FusedMoeGpuCall& call);

// May start before the kernel before it ends.
gpuError_t launch_moe_skinny(const FusedMoeGpuCall& call,
                             const MoeSkinnyScratch& scratch,
                             gpuStream_t stream);

}  // namespace atom::ops
