// The launches of fused_moe for many tokens by wide tiles.
#include "base/rounding.h"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_sort.h"
#include "ops/fused_moe/moe_tile_launch.cuh"
#include "ops/fused_moe/moe_wide_sm90.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kElementSize = 2;
constexpr auto kType = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
constexpr auto kSwizzle = CU_TENSOR_MAP_SWIZZLE_128B;
constexpr auto kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;

bool encode_rows(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns, int box) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(num_columns), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(num_columns) * kElementSize},
      {static_cast<cuuint32_t>(wide::kPanelElements), static_cast<cuuint32_t>(box)}};
  return encode_tensor_map(map, kType, data, shape, kSwizzle, kPromotion);
}

// Eights of gates, each before their ups, wherever these are. Of the last expert's there are no
// more gates than exist, so that their ups do.
bool encode_pairs(CUtensorMap* map, const FusedMoeGpuCall& call) {
  const bool interleaved = call.activation.is_interleaved;
  const int64_t row_size = int64_t{call.hidden_size} * kElementSize;
  const int64_t eights = int64_t{2} * call.num_experts * call.intermediate_size / wide::kPairRows;
  const int64_t own_eights = call.intermediate_size / wide::kPairRows;
  const auto bytes = [](int64_t size) { return static_cast<cuuint64_t>(size); };
  const TensorMapShape<4> shape = {
      {bytes(call.hidden_size),
       wide::kPairRows,
       2,
       bytes(interleaved ? eights / 2 : eights - own_eights)},
      {bytes(interleaved ? 2 * row_size : row_size),
       bytes(interleaved ? row_size : call.intermediate_size * row_size),
       bytes((interleaved ? 2 : 1) * wide::kPairRows * row_size)},
      {wide::kPanelElements, wide::kPairRows, 2, wide::kTileFeatures / 2 / wide::kPairRows}};
  return encode_tensor_map(map, kType, call.gate_up.data, shape, kSwizzle, kPromotion);
}

template <bool kGated>
gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeManyScratch& scratch,
                           int num_blocks,
                           gpuStream_t stream) {
  const int num_columns = kGated ? call.hidden_size : call.intermediate_size;
  const int outputs_of_pair = wide::kClusterSize * wide::kTileFeatures / (kGated ? 2 : 1);
  wide::MoeWideArgs args{};
  args.call = call;
  args.scratch = scratch;
  args.own = kGated ? call.gate_up : call.down;
  args.num_rows = kGated ? 2 * call.intermediate_size : call.hidden_size;
  args.num_outputs = kGated ? call.intermediate_size : call.hidden_size;
  args.num_column_pairs = ceil_div(args.num_outputs, outputs_of_pair);
  args.num_chunks = ceil_div(num_columns * kElementSize, wide::kPanelSize);
  const bool encoded = encode_rows(&args.x,
                                   kGated ? scratch.x : scratch.shared.activated,
                                   int64_t{call.num_tokens} * call.top_k,
                                   num_columns,
                                   wide::kBoxTokens) &&
                       (kGated ? encode_pairs(&args.matrices, call)
                               : encode_rows(&args.matrices,
                                             args.own.data,
                                             int64_t{call.num_experts} * args.num_rows,
                                             num_columns,
                                             wide::kTileFeatures));
  if (!encoded) return cudaErrorNotSupported;
  return launch_tile_clusters<wide::moe_wide<kGated>>(
      args, num_blocks, {wide::kClusterSize, wide::kNumThreads, wide::kSharedSize}, stream);
}

bool is_aligned(const void* data, int64_t elements) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0 &&
         elements % (kVectorSize / int{sizeof(BFloat16)}) == 0;
}

// Of one tensor with all experts' matrices.
bool fits_matrices(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  return is_aligned(matrices.data, num_columns) && matrices.scales == nullptr &&
         matrices.expert_stride == int64_t{num_rows} * num_columns * int{sizeof(BFloat16)};
}

}  // namespace

bool fits_moe_wide(const FusedMoeGpuCall& call) {
  const int size = call.intermediate_size;
  const bool is_known = call.activation.kind == GatedActivationKind::kSilu ||
                        call.activation.kind == GatedActivationKind::kClampedSwiGlu;
  return is_known && call.element == Element::kBFloat16 && call.format == ExpertFormat::kAsX &&
         is_aligned(call.x, call.x_stride) && call.num_experts <= kMaxGpuExperts &&
         fits_matrices(call.gate_up, 2 * size, call.hidden_size) &&
         fits_matrices(call.down, call.hidden_size, size) && call.hidden_size % 16 == 0;
}

gpuError_t launch_moe_wide(const FusedMoeGpuCall& call,
                           const MoeManyScratch& scratch,
                           gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error == cudaSuccess) {
    error = sort_many_moe_choices(call, scratch.shared, wide::kTileTokens, stream);
  }
  if (error == cudaSuccess) error = gather_moe_rows(call, scratch, stream);
  if (error == cudaSuccess) error = launch_matrices<true>(call, scratch, num_blocks, stream);
  if (error == cudaSuccess) error = launch_matrices<false>(call, scratch, num_blocks, stream);
  return error == cudaSuccess ? add_moe_results(call, scratch.results, stream) : error;
}

}  // namespace atom::ops
