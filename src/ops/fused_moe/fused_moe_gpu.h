// Inside fused_moe: one call on a GPU, for all of its kernels.
#pragma once

#include <stdint.h>

#include "ops/fused_moe/gated_activation.h"
#include "tensor/element.h"

namespace atom::ops {

enum class ExpertFormat : uint8_t {
  kAsX,     // x's element
  kFloat8,  // E4M3
  // E2M1, two in a byte, the first in the lower half, times 2^(exponent - 127) of 32 columns.
  kFloat4,
  kInt8,
  kInt4,          // as kFloat4 in its bytes, 8 more than the value; with scales of groups
  kFloat4Images,  // kFloat4 as expert_image_format.h has it
};

constexpr bool is_float4(ExpertFormat format) {
  return format == ExpertFormat::kFloat4 || format == ExpertFormat::kFloat4Images;
}

// The same matrix of all experts.
struct ExpertMatrices {
  const void* data;       // [E][rows, columns], or as images
  int64_t expert_stride;  // bytes
  // [E][ceil(rows / scale_rows), scales_across], each of so many rows and columns; null: 1.
  const float* scales;
  int64_t scale_stride;  // from expert to expert, in elements
  int scale_rows;
  int scale_columns;
  int scales_across;
  // [E][rows, columns / 32] of kFloat4 and its images.
  const uint8_t* exponents;
  int64_t exponent_stride;  // from expert to expert
  const void* bias;         // [E, rows], null: none
  Element bias_element;
};

// Strides of rows are in elements.
struct FusedMoeGpuCall {
  const void* x;
  const int32_t* ids;
  const float* weights;
  const int32_t* places;  // null: ids are places
  void* y;
  ExpertMatrices gate_up, down;
  GatedActivation activation;
  int64_t x_stride;
  int64_t y_stride;
  int num_tokens;
  int top_k;
  int num_ids;  // with a place, or experts
  int num_experts;
  int hidden_size;
  int intermediate_size;
  Element element;  // of x and of what is between the matrices
  ExpertFormat format;
  Element y_element;  // that of x, or float32
};

// What lies between the kernels, in scratch memory; a row per choice. Rows are in the order of
// experts, those of one expert in the order of choices.
struct FusedMoeGpuScratch {
  int32_t* choices;         // [rows]: of each row its choice, which is token * top_k + j
  int32_t* rows = nullptr;  // [choices]: the other way round, where an expert is here; if wanted
  int32_t* row_begins;      // [E + 1]: an expert's rows
  int32_t* tile_begins;     // [E + 1]: an expert's tiles of rows
  float* sums;              // [rows, 2 * intermediate_size]
  void* activated;          // [rows, intermediate_size]
  float* results;           // [choices, hidden_size]
};

constexpr int kMaxGpuExperts = 576;  // 512 and shared ones

// On a GPU's queue (DeviceQueue::handle()).
void fused_moe_cuda(const FusedMoeGpuCall& call, const FusedMoeGpuScratch& scratch, void* queue);

}  // namespace atom::ops
