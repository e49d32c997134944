// The launches of fused_moe for few tokens by experts in FP8.
#include <algorithm>

#include "base/rounding.h"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_skinny_launch_sm90.h"
#include "ops/fused_moe/moe_skinny_sm90.cuh"
#include "tensor/per_card.h"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::moe_skinny;

constexpr int kMaxColumns = kMaxPanels * kPanelSize;

int num_multiprocessors() {
  static PerCard<int> counts;
  return counts.get([] {
    int count = 0;
    (void)cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, current_card());
    return count;
  });
}

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0;
}

bool has_blocks(const ExpertMatrices& matrices) {
  return matrices.scale_rows == kHalfRows && matrices.scale_columns == kPanelSize;
}

// Of one tensor with all experts' matrices.
bool fits_matrices(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  const bool of_rows = matrices.scale_columns == num_columns &&
                       (matrices.scale_rows == 1 || matrices.scale_rows == num_rows);
  return is_aligned(matrices.data) && num_columns % kPanelSize == 0 && num_columns <= kMaxColumns &&
         num_rows % kHalfRows == 0 && matrices.expert_stride == int64_t{num_rows} * num_columns &&
         matrices.bias == nullptr && matrices.exponents == nullptr &&
         (has_blocks(matrices) || of_rows);
}

// Of a chunk's panels of a stage's rows.
bool encode_matrices(CUtensorMap* map, const void* data, int64_t num_rows, const MatrixArgs& args) {
  const auto num_panels = static_cast<cuuint64_t>(args.num_panels);
  const TensorMapShape<3> shape = {
      {kPanelSize, static_cast<cuuint64_t>(num_rows), num_panels},
      {num_panels * kPanelSize, kPanelSize},
      {kPanelSize, kStageRows, static_cast<cuuint32_t>(args.chunk_panels)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

// Rows of codes.
struct CodeRows {
  const uint8_t* data;
  int64_t num_rows, stride;
};

// Of a panel of so many rows.
bool encode_x(CUtensorMap* map, const CodeRows& rows, int num_columns, int box_rows) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(num_columns), static_cast<cuuint64_t>(rows.num_rows)},
      {static_cast<cuuint64_t>(rows.stride)},
      {static_cast<cuuint32_t>(kPanelSize), static_cast<cuuint32_t>(box_rows)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           rows.data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

bool prepare_matrix(MatrixArgs* args,
                    const FusedMoeGpuCall& call,
                    const MoeTokenCodes& codes,
                    const MoeSkinnyScratch& scratch,
                    bool is_gate_up,
                    int columns) {
  const int num_columns = is_gate_up ? call.hidden_size : call.intermediate_size;
  args->own = is_gate_up ? call.gate_up : call.down;
  args->x_scales = is_gate_up ? scratch.x_scales : scratch.activated_scales;
  args->num_rows = is_gate_up ? 2 * call.intermediate_size : call.hidden_size;
  args->half_stride = is_gate_up ? call.intermediate_size : kHalfRows;
  args->tile_stride = is_gate_up ? kHalfRows : 2 * kHalfRows;
  args->num_tiles = ceil_div(args->num_rows, 2 * kHalfRows);
  args->num_panels = num_columns / kPanelSize;
  args->chunk_panels = ceil_div(args->num_panels, ceil_div(args->num_panels, kChunkPanels));
  args->has_blocks = has_blocks(args->own);
  CodeRows x = {is_gate_up ? scratch.x : scratch.activated, scratch.num_rows, num_columns};
  if (is_gate_up && codes.defined()) {
    x = {codes.values, call.num_tokens, codes.stride};
    args->x_scales = codes.scales;
    columns = 1;
  }
  return encode_matrices(
             &args->matrices, args->own.data, int64_t{call.num_experts} * args->num_rows, *args) &&
         encode_x(&args->x, x, num_columns, columns);
}

template <int kColumns, typename Limits>
gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeTokenCodes& codes,
                           const MoeSkinnyScratch& scratch,
                           int num_blocks,
                           gpuStream_t stream) {
  constexpr int kSize = Shared<kColumns>::kSize;
  auto* const kernel = codes.defined() ? &moe_skinny_matrices<kColumns, Limits, true>
                                       : &moe_skinny_matrices<kColumns, Limits, false>;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSize);
  if (error != cudaSuccess) return error;
  MoeSkinnyArgs args{};
  args.call = call;
  args.codes = codes;
  args.scratch = scratch;
  if (!prepare_matrix(&args.matrices[0], call, codes, scratch, true, kColumns) ||
      !prepare_matrix(&args.matrices[1], call, codes, scratch, false, kColumns)) {
    return cudaErrorNotSupported;
  }
  return launch(kernel, dim3(num_blocks), dim3(kThreads), kSize, stream, true, args);
}

// By groups so large that hardly an expert with an even share of the choices has several: each is
// read by itself.
template <typename Limits>
gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeTokenCodes& codes,
                           const MoeSkinnyScratch& scratch,
                           int num_blocks,
                           gpuStream_t stream) {
  const int num_choices = call.num_tokens * call.top_k;
  const auto has_share = [&](int rows) { return num_choices <= rows * call.num_experts; };
  if (call.num_tokens <= 8 || has_share(2)) {
    return launch_matrices<8, Limits>(call, codes, scratch, num_blocks, stream);
  }
  if (call.num_tokens <= 16 || has_share(8)) {
    return launch_matrices<16, Limits>(call, codes, scratch, num_blocks, stream);
  }
  return launch_matrices<32, Limits>(call, codes, scratch, num_blocks, stream);
}

}  // namespace

int num_moe_skinny_rows(int num_tokens, int top_k, int num_experts) {
  const int num_choices = num_tokens * top_k;
  const int most = num_choices + (kRowUnit - 1) * std::min(num_choices, num_experts);
  // Copies of the last rows go on past them.
  return ceil_div(most, kRowUnit) * kRowUnit + kMaxMoeSkinnyColumns;
}

bool fits_moe_skinny(const FusedMoeGpuCall& call) {
  return call.element == Element::kBFloat16 && call.format == ExpertFormat::kFloat8 &&
         !call.activation.is_interleaved && call.num_tokens <= kMaxMoeSkinnyTokens &&
         call.num_tokens * call.top_k <= kMaxMoeSkinnyChoices &&
         call.num_experts <= kMaxGpuExperts && call.intermediate_size % kHalfRows == 0 &&
         is_aligned(call.x) && call.x_stride * 2 % kVectorSize == 0 &&
         fits_matrices(call.gate_up, 2 * call.intermediate_size, call.hidden_size) &&
         fits_matrices(call.down, call.hidden_size, call.intermediate_size);
}

gpuError_t launch_moe_skinny(const FusedMoeGpuCall& call,
                             const MoeTokenCodes& codes,
                             const MoeSkinnyScratch& scratch,
                             gpuStream_t stream) {
  const int num_blocks = num_multiprocessors();
  const bool is_few =
      call.num_tokens <= FewTokens::kTokens && call.num_tokens * call.top_k <= FewTokens::kChoices;
  const gpuError_t error =
      is_few ? launch_matrices<FewTokens>(call, codes, scratch, num_blocks, stream)
             : launch_matrices<MoreTokens>(call, codes, scratch, num_blocks, stream);
  return error == cudaSuccess ? add_moe_skinny_results(call, scratch, stream) : error;
}

}  // namespace atom::ops
