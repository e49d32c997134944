// Inside fused_moe by terms in FP8: the launches of both matrices, as rows or as images.
#pragma once

#include <algorithm>

#include "base/rounding.h"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_terms_launch_sm90.h"
#include "ops/fused_moe/moe_terms_sm90.cuh"
#include "tensor/per_card.h"

namespace atom::ops::device::terms {

struct Rows {
  const void* data;
  int64_t count, columns;
};

inline bool encode_x(CUtensorMap* map, const Rows& x) {
  const auto count = static_cast<cuuint64_t>(x.count), columns = static_cast<cuuint64_t>(x.columns);
  const TensorMapShape<3> shape = {
      {columns, count, kTerms}, {columns, columns * count}, {kPanelColumns, kUnit8, kTerms}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           x.data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

inline bool encode_x_scales(CUtensorMap* map, const Rows& scales) {
  const auto width = static_cast<cuuint64_t>(moe_term_groups(scales.columns));
  const TensorMapShape<2> shape = {{static_cast<cuuint64_t>(scales.columns / kExponentColumns),
                                    static_cast<cuuint64_t>(scales.count)},
                                   {width * sizeof(float)},
                                   {kChunkBlocks, kUnit8}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                           scales.data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_NONE,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

inline bool encode_matrices(CUtensorMap* map, const Rows& matrices, bool is_whole) {
  const auto row_size = static_cast<cuuint64_t>(matrices.columns / 2);
  const cuuint32_t box_rows = is_whole ? kTileRows : kHalfRows;
  const TensorMapShape<2> shape = {
      {row_size, static_cast<cuuint64_t>(matrices.count)}, {row_size}, {kRowSize, box_rows}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           matrices.data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

template <int kTokens, bool kGated, bool kImages>
gpuError_t launch_matrix(const FusedMoeGpuCall& call,
                         const MoeTermsScratch& scratch,
                         gpuStream_t stream) {
  auto* kernel = &moe_terms<kTokens, kGated, kImages>;
  static PerCard<gpuError_t> allowed;
  const gpuError_t prepared = allowed.get([&] {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedSize);
  });
  if (prepared != cudaSuccess) return prepared;
  // As many as there is room for: fewer may come to stand two by two on some multiprocessors.
  static const int num_blocks = [] {
    int gpu = 0, count = 0;
    (void)cudaGetDevice(&gpu);
    (void)cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu);
    return kBlocksAtOnce * count;
  }();
  const int num_columns = kGated ? call.hidden_size : call.intermediate_size;
  MoeTermsArgs args{};
  args.call = call;
  args.scratch = scratch;
  args.own = kGated ? call.gate_up : call.down;
  args.num_rows = kGated ? 2 * call.intermediate_size : call.hidden_size;
  args.num_outputs = kGated ? call.intermediate_size : call.hidden_size;
  args.num_column_tiles = ceil_div(args.num_rows, kTileRows);
  args.num_chunks = ceil_div(num_columns, kChunkColumns);
  args.last_steps = ceil_div(num_columns, kChunkColumns / 2) % 2 == 1 ? 2 : kChunkSteps;
  args.row_exponents = num_columns / kExponentColumns;
  args.exponents_size = exponents_size_of(num_columns);
  if constexpr (kImages) {
    args.row_images = num_columns / kImageColumns;
    args.last_steps = (args.row_images - 1) % kChunkImages + 1;
  }
  constexpr int kStage = kStageSize<kTokens, kGated>;
  const int fixed = fixed_size(args.exponents_size);
  args.num_stages = std::min((kSharedSize - fixed) / kStage, kMaxStages);
  const int64_t num_choices = int64_t{call.num_tokens} * call.top_k;
  const Rows x = {kGated ? scratch.x : scratch.shared.activated, num_choices, num_columns};
  const Rows scales = {scratch.activated_scales, num_choices, call.intermediate_size};
  const Rows matrices = {args.own.data, int64_t{call.num_experts} * args.num_rows, num_columns};
  if (!encode_x(&args.x, x) || (!kGated && !encode_x_scales(&args.x_scales, scales)) ||
      (!kImages && !encode_matrices(&args.matrices, matrices, is_whole<kGated>(call)))) {
    return cudaErrorNotSupported;
  }
  return device::launch(kernel,
                        dim3(num_blocks),
                        dim3(kThreads),
                        args.num_stages * kStage + fixed,
                        stream,
                        true,
                        args);
}

template <bool kImages>
gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeTermsScratch& scratch,
                           int num_tokens,
                           gpuStream_t stream) {
  const auto launch_both = [&]<int kTokens>(std::integral_constant<int, kTokens>) {
    const gpuError_t error = launch_matrix<kTokens, true, kImages>(call, scratch, stream);
    return error == cudaSuccess ? launch_matrix<kTokens, false, kImages>(call, scratch, stream)
                                : error;
  };
  return num_tokens == 8 ? launch_both(std::integral_constant<int, 8>())
                         : launch_both(std::integral_constant<int, 16>());
}

}  // namespace atom::ops::device::terms
