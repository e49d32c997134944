// The launches of fused_moe for many tokens by experts in MXFP4.
#include <algorithm>

#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_float4_sm90.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kMostSharedSize = 227 << 10;
constexpr int kLeastStages = 3;
constexpr int kGatherThreads = 128;
constexpr int kPieceColumns = 32;  // of four places of x that a thread writes

int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

// Rows of x in the order of experts, and in chunks the order of columns that products take; see
// column_at(). A thread writes the places of two products, which are eight columns of each lane's
// 32.
__global__ void __launch_bounds__(kGatherThreads)
    gather_in_order(const __grid_constant__ FusedMoeGpuCall call, MoeFloat4Scratch scratch) {
  constexpr int kLanes = 4;
  allow_next_grid();
  wait_for_previous_grid();
  const int row = blockIdx.x;
  if (row >= gpu_load_from_l2(scratch.shared.row_begins + call.num_experts)) return;
  const auto* x = static_cast<const BFloat16*>(call.x) +
                  gpu_load_from_l2(scratch.shared.choices + row) / call.top_k * call.x_stride;
  const auto width = static_cast<int>(padded_moe_columns(call.hidden_size));
  auto* target = static_cast<BFloat16*>(scratch.x) + int64_t{row} * width;
  for (int piece = threadIdx.x; piece < width / kPieceColumns; piece += kGatherThreads) {
    const int chunk = piece / kLanes * kMoeChunkColumns, word = piece % kLanes;
    uint4 pairs[kLanes];
#pragma unroll
    for (int t = 0; t < kLanes; ++t) {
      const int column = chunk + t * 32 + word * 8;
      pairs[t] = RowFormat<Float4>::paired(column < call.hidden_size ? load_bits_from_l2(x + column)
                                                                     : uint4{});
    }
    BFloat16* places = target + chunk + word * kPieceColumns;
    store_bits(places, {pairs[0].x, pairs[1].x, pairs[2].x, pairs[3].x});
    store_bits(places + 8, {pairs[0].y, pairs[1].y, pairs[2].y, pairs[3].y});
    store_bits(places + 16, {pairs[0].z, pairs[1].z, pairs[2].z, pairs[3].z});
    store_bits(places + 24, {pairs[0].w, pairs[1].w, pairs[2].w, pairs[3].w});
  }
}

bool is_aligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0 && bytes % kVectorSize == 0;
}

// Of a tile.
int exponents_size(int num_columns) {
  // Lanes read four of the last chunk, of which a row may have two.
  return (moe4::kTileRows * (num_columns / kExponentColumns) + 16 + 127) / 128 * 128;
}

int num_stages(int num_tokens, int num_columns) {
  const int size = kMostSharedSize - moe4::fixed_size(exponents_size(num_columns));
  return std::min(moe4::kMaxStages, size / moe4::stage_size(num_tokens));
}

// Of one tensor with all experts' matrices.
bool fits_matrices(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  return num_columns % (2 * kExponentColumns) == 0 && num_rows % 16 == 0 &&
         is_aligned(matrices.data, num_columns / 2) &&
         matrices.expert_stride == int64_t{num_rows} * num_columns / 2 &&
         is_aligned(matrices.exponents, matrices.exponent_stride) &&
         num_stages(128, num_columns) >= kLeastStages;
}

bool encode_x(
    CUtensorMap* map, const void* data, int64_t num_rows, int64_t num_columns, int num_tokens) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(num_columns), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(num_columns) * 2},
      {static_cast<cuuint32_t>(moe4::kPanelSize / 2), static_cast<cuuint32_t>(num_tokens)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

bool encode_matrices(CUtensorMap* map, const void* data, int64_t num_rows, int row_size) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(row_size), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(row_size)},
      {static_cast<cuuint32_t>(moe4::kMatrixRowSize), static_cast<cuuint32_t>(moe4::kHalfRows)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_NONE,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

template <int kTokens, bool kGated>
gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeFloat4Scratch& scratch,
                           int num_blocks,
                           gpuStream_t stream) {
  auto* kernel = &moe4::moe_float4<kTokens, kGated>;
  static const gpuError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedSize);
  if (prepared != cudaSuccess) return prepared;
  const int num_columns = kGated ? call.hidden_size : call.intermediate_size;
  moe4::MoeFloat4Args args{};
  args.call = call;
  args.scratch = scratch;
  args.own = kGated ? call.gate_up : call.down;
  args.num_rows = kGated ? 2 * call.intermediate_size : call.hidden_size;
  args.num_outputs = kGated ? call.intermediate_size : call.hidden_size;
  args.num_column_tiles = divide_up(args.num_outputs, kGated ? moe4::kHalfRows : moe4::kTileRows);
  args.num_chunks = divide_up(num_columns, kMoeChunkColumns);
  args.row_exponents = num_columns / kExponentColumns;
  args.num_stages = num_stages(kTokens, num_columns);
  args.exponents_size = exponents_size(num_columns);
  const void* x = kGated ? scratch.x : scratch.shared.activated;
  if (!encode_x(&args.x,
                x,
                int64_t{call.num_tokens} * call.top_k,
                padded_moe_columns(num_columns),
                kTokens) ||
      !encode_matrices(&args.matrices,
                       args.own.data,
                       int64_t{call.num_experts} * args.num_rows,
                       num_columns / 2)) {
    return cudaErrorNotSupported;
  }
  const int size =
      args.num_stages * moe4::stage_size(kTokens) + moe4::fixed_size(args.exponents_size);
  return launch(kernel, dim3(num_blocks), dim3(moe4::kNumThreads), size, stream, true, args);
}

// With tiles of kTokens rows.
template <int kTokens>
gpuError_t launch_all(const FusedMoeGpuCall& call,
                      const MoeFloat4Scratch& scratch,
                      int num_blocks,
                      gpuStream_t stream) {
  gpuError_t error = sort_moe_choices(call, scratch.shared, kTokens, stream);
  if (error == cudaSuccess) {
    error = launch(gather_in_order,
                   dim3(call.num_tokens * call.top_k),
                   dim3(kGatherThreads),
                   0,
                   stream,
                   true,
                   call,
                   scratch);
  }
  if (error == cudaSuccess) {
    error = launch_matrices<kTokens, true>(call, scratch, num_blocks, stream);
  }
  if (error == cudaSuccess) {
    error = launch_matrices<kTokens, false>(call, scratch, num_blocks, stream);
  }
  return error == cudaSuccess ? add_moe_results(call, scratch.results, stream) : error;
}

}  // namespace

bool fits_moe_float4(const FusedMoeGpuCall& call) {
  const int size = call.intermediate_size;
  const GatedActivationKind kind = call.activation.kind;
  return call.element == Element::kBFloat16 && call.format == ExpertFormat::kFloat4 &&
         (kind == GatedActivationKind::kSilu || kind == GatedActivationKind::kClampedSwiGlu) &&
         is_aligned(call.x, call.x_stride * 2) && call.num_experts <= kMaxGpuExperts &&
         fits_matrices(call.gate_up, 2 * size, call.hidden_size) &&
         fits_matrices(call.down, call.hidden_size, size);
}

gpuError_t launch_moe_float4(const FusedMoeGpuCall& call,
                             const MoeFloat4Scratch& scratch,
                             gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error != cudaSuccess) return error;
  // Tiles that most experts' rows fit, while a matrix is read once.
  const int rows = call.num_tokens * call.top_k / call.num_experts;
  if (rows <= 20) return launch_all<32>(call, scratch, num_blocks, stream);
  if (rows <= 48) return launch_all<64>(call, scratch, num_blocks, stream);
  return launch_all<128>(call, scratch, num_blocks, stream);
}

}  // namespace atom::ops
