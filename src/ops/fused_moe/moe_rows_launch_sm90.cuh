// Inside fused_moe by rows of matrices on Hopper: the launches of one weight type.
#pragma once

#include <algorithm>

#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_rows_launch_sm90.h"
#include "ops/fused_moe/moe_rows_sm90.cuh"
#include "tensor/per_card.h"

namespace atom::ops::device::rows {

constexpr int kSharedSize = 227 << 10, kHalfSharedSize = 113 << 10;

template <typename W>
bool encode_x(
    CUtensorMap* map, const void* data, int64_t num_rows, int64_t num_columns, int box_tokens) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(num_columns), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(num_columns) * 2},
      {static_cast<cuuint32_t>(kPanelSize / 2), static_cast<cuuint32_t>(box_tokens)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

template <typename W, bool kGated>
bool encode_matrices(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns) {
  constexpr bool kRegisters = Chunk<W>::kFromRegisters;
  const int row_size = kRegisters ? num_columns / 2 : num_columns * 2;
  const int element_size = kRegisters ? 1 : 2;
  const int box_rows = kGated && !kRegisters ? kPairRows : kHalfRows<W>;
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(row_size / element_size), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(row_size)},
      {static_cast<cuuint32_t>(Chunk<W>::kRowSize / element_size),
       static_cast<cuuint32_t>(box_rows)}};
  return encode_tensor_map(
      map,
      kRegisters ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      data,
      shape,
      kRegisters ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

template <typename W, int kTokens, bool kGated>
gpuError_t launch_matrix(const FusedMoeGpuCall& call,
                         const MoeRowsScratch& scratch,
                         gpuStream_t stream) {
  auto* kernel = &moe_rows<W, kTokens, kGated>;
  constexpr int kMostSharedSize = kIsSmall<W, kTokens> ? kHalfSharedSize : kSharedSize;
  static PerCard<gpuError_t> allowed;
  const gpuError_t prepared = allowed.get([&] {
    return cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedSize);
  });
  if (prepared != cudaSuccess) return prepared;
  // As many as there is room for: fewer may come to stand two by two on some multiprocessors.
  static const int num_blocks = [] {
    int gpu = 0, count = 0;
    (void)cudaGetDevice(&gpu);
    (void)cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu);
    return kIsSmall<W, kTokens> ? 2 * count : count;
  }();
  const auto in_chunks = [](int columns) {
    return (columns + Chunk<W>::kColumns - 1) / Chunk<W>::kColumns;
  };
  const int num_columns = kGated ? call.hidden_size : call.intermediate_size;
  MoeRowsArgs args{};
  args.call = call;
  args.scratch = scratch;
  args.own = kGated ? call.gate_up : call.down;
  args.num_rows = kGated ? 2 * call.intermediate_size : call.hidden_size;
  args.num_outputs = kGated ? call.intermediate_size : call.hidden_size;
  args.activated_width = in_chunks(call.intermediate_size) * Chunk<W>::kColumns;
  const int outputs_of_tile = kGated ? kHalfRows<W> : kTileRows<W>;
  // All of the last chunk's places are written, also where two tiles share it.
  const int outputs = kGated ? args.activated_width : args.num_outputs;
  args.num_column_tiles = (outputs + outputs_of_tile - 1) / outputs_of_tile;
  args.num_chunks = in_chunks(num_columns);
  const int64_t width = int64_t{args.num_chunks} * Chunk<W>::kColumns;  // of x
  if constexpr (Chunk<W>::kImages) args.row_images = num_columns / kImageColumns;
  if constexpr (RowFormat<W>::kHasExponents) {
    args.row_exponents = num_columns / kExponentColumns;
    args.exponents_size = exponents_size<W>(num_columns);
  }
  constexpr int kStage = kStageSize<W, kTokens>;
  const int fixed = fixed_size<W>(args.exponents_size);
  args.num_stages = std::min((kMostSharedSize - fixed) / kStage, kMaxStages);
  const void* x = kGated ? scratch.x : scratch.shared.activated;
  if (!encode_x<W>(&args.x, x, int64_t{call.num_tokens} * call.top_k, width, kTokens) ||
      (!Chunk<W>::kImages && !encode_matrices<W, kGated>(&args.matrices,
                                                         args.own.data,
                                                         int64_t{call.num_experts} * args.num_rows,
                                                         num_columns))) {
    return cudaErrorNotSupported;
  }
  return launch(kernel,
                dim3(num_blocks),
                dim3(kThreadsOf<W>),
                args.num_stages * kStage + fixed,
                stream,
                true,
                args);
}

template <typename W, int kTokens>
gpuError_t launch_both(const FusedMoeGpuCall& call,
                       const MoeRowsScratch& scratch,
                       gpuStream_t stream) {
  const gpuError_t error = launch_matrix<W, kTokens, true>(call, scratch, stream);
  return error == cudaSuccess ? launch_matrix<W, kTokens, false>(call, scratch, stream) : error;
}

template <typename W, int kTokens>
gpuError_t launch_if_there(const FusedMoeGpuCall& call,
                           const MoeRowsScratch& scratch,
                           gpuStream_t stream) {
  constexpr bool kIsThere = kTokens >= kLeastTokens<W> && kTokens <= kMostTokens<W>;
  if constexpr (kIsThere) return launch_both<W, kTokens>(call, scratch, stream);
  return cudaErrorInvalidValue;
}

template <typename W>
gpuError_t launch_with(int num_tokens,
                       const FusedMoeGpuCall& call,
                       const MoeRowsScratch& scratch,
                       gpuStream_t stream) {
  switch (num_tokens) {
    case 8:
      return launch_if_there<W, 8>(call, scratch, stream);
    case 16:
      return launch_if_there<W, 16>(call, scratch, stream);
    case 32:
      return launch_if_there<W, 32>(call, scratch, stream);
    case 48:
      return launch_if_there<W, 48>(call, scratch, stream);
    case 64:
      return launch_if_there<W, 64>(call, scratch, stream);
    case 96:
      return launch_if_there<W, 96>(call, scratch, stream);
    default:
      return launch_if_there<W, 128>(call, scratch, stream);
  }
}

}  // namespace atom::ops::device::rows
