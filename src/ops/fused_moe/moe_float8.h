// Inside fused_moe: many tokens by experts in FP8 on Hopper, before they are multiplied. Rows of x
// are gathered by expert and quantized, each 128 columns by a scale of their own, as what is
// between the matrices is.
#pragma once

#include <optional>

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kMoeCodeGroup = 128;  // columns of x that share a scale

struct MoeFloat8Scratch {
  // `choices`, `rows`, `row_begins`, `tile_begins`, and `activated` in codes.
  FusedMoeGpuScratch shared;
  uint8_t* x;               // [rows or tokens, hidden_size] codes
  float* x_scales;          // [ceil(hidden_size / 128), rows or tokens]
  float* activated_scales;  // [ceil(intermediate_size / 128), rows]
  void* results;            // of x's type: [choices, hidden_size] weighted, or [rows, hidden_size]
};

// What a scale of a matrix is of.
enum class MoeRowScales : uint8_t { kBlocks /* of 128 x 128 */, kEach /* row */, kAll };
// Of a matrix of more than one row; nothing: of something else.
std::optional<MoeRowScales> moe_scales_of(const ExpertMatrices& matrices,
                                          int num_rows,
                                          int num_columns);

// scratch.x and scratch.x_scales, when choices are sorted.
gpuError_t quantize_moe_rows(const FusedMoeGpuCall& call,
                             const MoeFloat8Scratch& scratch,
                             gpuStream_t stream);

// The same of tokens, [tokens, hidden_size] and [groups, tokens], whatever their choices are.
gpuError_t quantize_moe_tokens(const FusedMoeGpuCall& call,
                               const MoeFloat8Scratch& scratch,
                               gpuStream_t stream);

// x in bfloat16, matrices in FP8 with a scale for each row or for each 128 x 128 values.
bool fits_moe_float8(const FusedMoeGpuCall& call);

}  // namespace atom::ops
