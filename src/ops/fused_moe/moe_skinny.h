// Inside fused_moe: few tokens by experts in FP8 on Hopper. Both matrices are multiplied by one
// kernel, whose blocks take tiles of the first and then of the second from one list, so that the
// copies of the second's tiles are under way while the last of the first are multiplied.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "ops/fused_moe/moe_token_codes.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kMaxMoeSkinnyTokens = 256, kMaxMoeSkinnyChoices = 2816;
// Up to so many choices are arranged by smaller tables.
constexpr int kFewMoeSkinnyTokens = 64, kFewMoeSkinnyChoices = 1024;
constexpr int kMoeSkinnyGroup = 128;  // columns of x that share a scale

// A group is an expert with up to so many of its tokens.
constexpr int kMaxMoeSkinnyColumns = 32;
constexpr int kMaxMoeSkinnyGroups = kMaxGpuExperts + kMaxMoeSkinnyChoices / 16;

// Of tokens whose rows of x are there, of tiles that blocks have taken, of each group's activated
// tiles.
constexpr int kNumMoeSkinnyCounters = 2 + kMaxMoeSkinnyGroups;

// What lies between the kernels. Rows are in the order of experts, those of one expert in the order
// of tokens; an expert's begin at a multiple of four.
struct MoeSkinnyScratch {
  // Of calls whose x is not in codes `choices`, `weights`, `x` and `x_scales`.
  int32_t* choices;                    // [rows]: token * top_k + j
  float* weights;                      // [rows]: of the choices
  int32_t* counters;                   // [kNumMoeSkinnyCounters], zeros before and behind the call
  uint8_t *x, *activated;              // [rows, hidden_size], [rows, intermediate_size] codes
  float *x_scales, *activated_scales;  // [columns / 128, rows]
  float* results;                      // [choices, hidden_size], weighted
  int num_rows;
};

// `num_rows` for so many tokens.
int num_moe_skinny_rows(int num_tokens, int top_k, int num_experts);

// As many tokens as kMaxMoeSkinnyTokens, x in bfloat16, matrices in FP8 with a scale for each row
// or for each 128 x 128 values, sizes that are multiples of 128.
bool fits_moe_skinny(const FusedMoeGpuCall& call);

// x is quantized unless `codes` have it so. May start before the kernel before it ends. The blocks,
// one for each multiprocessor, must all fit the card at once: nothing else that waits for other
// kernels runs there meanwhile.
gpuError_t launch_moe_skinny(const FusedMoeGpuCall& call,
                             const MoeTokenCodes& codes,
                             const MoeSkinnyScratch& scratch,
                             gpuStream_t stream);

}  // namespace atom::ops
