// Inside fused_moe for many tokens by experts in FP8 on Hopper: what its kernels are told alike.
#pragma once

#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_float8.h"

namespace atom::ops::device {

// Of rows of codes, in boxes of a group's columns and `box` rows.
inline bool encode_code_rows(
    CUtensorMap* map, const void* data, int64_t num_rows, int num_columns, int box) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(num_columns), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(num_columns)},
      {static_cast<cuuint32_t>(kMoeCodeGroup), static_cast<cuuint32_t>(box)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

// What kernels by experts in FP8 are told of the first (`gated`) or the second matrix: all but maps
// and what x is. A tile has `tile_outputs` outputs.
template <typename Args>
Args float8_matrix_args(const FusedMoeGpuCall& call,
                        const MoeFloat8Scratch& scratch,
                        bool gated,
                        int tile_outputs) {
  const auto divide_up = [](int a, int b) { return (a + b - 1) / b; };
  const int num_columns = gated ? call.hidden_size : call.intermediate_size;
  Args args{};
  args.call = call;
  args.scratch = scratch;
  args.own = gated ? call.gate_up : call.down;
  args.x_scales = gated ? scratch.x_scales : scratch.activated_scales;
  args.num_rows = gated ? 2 * call.intermediate_size : call.hidden_size;
  args.num_outputs = gated ? call.intermediate_size : call.hidden_size;
  args.num_column_tiles = divide_up(args.num_outputs, tile_outputs);
  args.num_chunks = divide_up(num_columns, kMoeCodeGroup);
  args.scales = *moe_scales_of(args.own, args.num_rows, num_columns);
  return args;
}

}  // namespace atom::ops::device
