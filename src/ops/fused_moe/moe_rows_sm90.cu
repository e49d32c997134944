// The launches of fused_moe by rows of matrices: choices and x in the order of experts, and both
// matrices.
#include <algorithm>
#include <cmath>

#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_arrange_launch.cuh"
#include "ops/fused_moe/moe_rows_early.cuh"
#include "ops/fused_moe/moe_rows_launch_sm90.h"
#include "ops/fused_moe/moe_rows_stage.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kPieceColumns = 32;  // of four places of x that a thread writes

// A row of x with its columns in the order in which products take them; zeros behind its end. By a
// block.
template <typename W>
__device__ void copy_in_order(const FusedMoeGpuCall& call,
                              const MoeRowsScratch& scratch,
                              int choice,
                              int row) {
  constexpr int kLanes = 4, kColumns = rows::Chunk<W>::kColumns;
  constexpr int kPieces = kColumns / kPieceColumns;
  const auto* x =
      static_cast<const BFloat16*>(call.x) + int64_t{choice / call.top_k} * call.x_stride;
  const int width = (call.hidden_size + kColumns - 1) / kColumns * kColumns;
  auto* target = static_cast<BFloat16*>(scratch.x) + int64_t{row} * width;
  for (int piece = threadIdx.x; piece < width / kPieceColumns; piece += kArrangeThreads) {
    const int chunk = piece / kPieces * kColumns, part = piece % kPieces;
    uint4 vectors[kLanes];
#pragma unroll
    for (int t = 0; t < kLanes; ++t) {
      constexpr bool kInOrder = !rows::Chunk<W>::kFromRegisters;
      const int column =
          kInOrder ? piece * kPieceColumns + t * 8 : chunk + t * (kColumns / kLanes) + part * 8;
      vectors[t] = column < call.hidden_size ? load_bits_from_l2(x + column) : uint4{};
      if constexpr (RowFormat<W>::kHasExponents) vectors[t] = RowFormat<W>::paired(vectors[t]);
    }
    BFloat16* places = target + piece * kPieceColumns;
    if constexpr (rows::Chunk<W>::kFromRegisters) {
      store_bits(places, {vectors[0].x, vectors[1].x, vectors[2].x, vectors[3].x});
      store_bits(places + 8, {vectors[0].y, vectors[1].y, vectors[2].y, vectors[3].y});
      store_bits(places + 16, {vectors[0].z, vectors[1].z, vectors[2].z, vectors[3].z});
      store_bits(places + 24, {vectors[0].w, vectors[1].w, vectors[2].w, vectors[3].w});
    } else {
#pragma unroll
      for (int t = 0; t < kLanes; ++t) store_bits(places + t * 8, vectors[t]);
    }
  }
}

template <typename W>
__global__ void __launch_bounds__(kArrangeThreads)
    gather_rows_in_order(const __grid_constant__ FusedMoeGpuCall call, MoeRowsScratch scratch) {
  const int row = blockIdx.x;
  allow_next_grid();
  wait_for_previous_grid();
  if (row >= gpu_load_from_l2(scratch.shared.row_begins + call.num_experts)) return;
  copy_in_order<W>(call, scratch, gpu_load_from_l2(scratch.shared.choices + row), row);
}

// Sorts few choices and gathers x in one launch.
template <typename W>
__global__ void __launch_bounds__(kArrangeThreads)
    arrange_rows(const __grid_constant__ FusedMoeGpuCall call,
                 MoeRowsScratch scratch,
                 int tile_rows) {
  const int num_choices = call.num_tokens * call.top_k, choice = blockIdx.x;
  if constexpr (rows::Chunk<W>::kEarly) {
    // The next kernel reads the choices before it waits.
    wait_for_previous_grid();
    allow_next_grid();
  } else {
    allow_next_grid();
    wait_for_previous_grid();
  }
  if (choice == num_choices) return count_rows(call, scratch.shared, tile_rows);
  const int row = find_row(call, scratch.shared, choice);
  if (row >= 0) copy_in_order<W>(call, scratch, choice, row);
}

template <typename W>
gpuError_t arrange(const FusedMoeGpuCall& call,
                   const MoeRowsScratch& scratch,
                   int tile_rows,
                   gpuStream_t stream) {
  return arrange_choices(
      call, scratch, tile_rows, stream, arrange_rows<W>, gather_rows_in_order<W>);
}

bool is_aligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0 && bytes % kVectorSize == 0;
}

// Of one tensor with all experts' matrices.
bool fits_matrices(const ExpertMatrices& matrices,
                   int num_rows,
                   int num_columns,
                   ExpertFormat format) {
  const int row_size = format == ExpertFormat::kAsX ? num_columns * 2 : num_columns / 2;
  if (!is_aligned(matrices.data, row_size) ||
      matrices.expert_stride != int64_t{num_rows} * row_size) {
    return false;
  }
  switch (format) {
    case ExpertFormat::kAsX:
      return true;
    case ExpertFormat::kFloat4:
      // Exponents are copied of whole vectors: of a tile's rows, and of half of a matrix's.
      return num_columns % kExponentColumns == 0 && num_rows % 16 == 0 &&
             num_rows / 2 * (num_columns / kExponentColumns) % kVectorSize == 0 &&
             is_aligned(matrices.exponents, matrices.exponent_stride) &&
             rows::exponents_size<Float4>(num_columns) <= rows::kMostExponents;
    case ExpertFormat::kFloat4Images:
      static_assert(rows::exponents_size<Float4>(kMostImageColumns) <= rows::kMostExponents);
      return num_columns % kImageColumns == 0 && num_rows % kImageRows == 0 &&
             num_columns <= kMostImageColumns &&
             is_aligned(matrices.exponents, matrices.exponent_stride);
    default:
      return false;
  }
}

using LaunchMatrices = gpuError_t(const FusedMoeGpuCall&,
                                  const MoeRowsScratch&,
                                  int num_tokens,
                                  gpuStream_t);

// The rows that an expert's tiles of so many have on average, those of no token too, where its rows
// are `rows` on average and come by chance.
double padded_rows(double rows, int tile) {
  double num_tiles = 0;
  for (int count = 0;; ++count) {
    const double distance = (count * tile + 0.5 - rows) / std::sqrt(2 * rows);
    const double has_more = 0.5 * std::erfc(distance);
    num_tiles += has_more;
    if (has_more < 1e-3) return num_tiles * tile;
  }
}

// Of experts of so many rows.
int large_tile(int rows) {
  constexpr double kLeastGain = 0.95;  // a larger tile expands fewer codes
  return padded_rows(rows, 96) < kLeastGain * padded_rows(rows, 128) ? 96 : 128;
}

// Of a tile that most experts' rows fit, while a matrix is read once.
int tile_tokens(const FusedMoeGpuCall& call, int most) {
  const int rows = call.num_tokens * call.top_k / call.num_experts;
  const int wanted = rows <= 4                              ? 8
                     : rows <= 10                           ? 16
                     : rows <= 22                           ? 32
                     : rows <= 32 && is_float4(call.format) ? 48
                     : rows <= 48                           ? 64
                                                            : large_tile(rows);
  // No expert has more than one row of a token.
  const int enough = call.num_tokens <= 8 ? 8 : call.num_tokens <= 16 ? 16 : most;
  return std::min({most, wanted, enough});
}

template <typename W>
gpuError_t launch_all(const FusedMoeGpuCall& call,
                      const MoeRowsScratch& scratch,
                      LaunchMatrices* launch_matrices,
                      gpuStream_t stream) {
  const int num_tokens = tile_tokens(call, rows::kMostTokens<W>);
  gpuError_t error = arrange<W>(call, scratch, num_tokens, stream);
  if (error == cudaSuccess) error = launch_matrices(call, scratch, num_tokens, stream);
  return error == cudaSuccess ? add_moe_results(call, scratch.results, stream) : error;
}

}  // namespace

bool fits_moe_rows(const FusedMoeGpuCall& call) {
  const int size = call.intermediate_size;
  const GatedActivation& activation = call.activation;
  const bool is_known = activation.kind == GatedActivationKind::kSilu ||
                        activation.kind == GatedActivationKind::kClampedSwiGlu;
  // From shared memory gates and ups are taken by turns.
  const bool can_take_turns = call.format != ExpertFormat::kAsX || !activation.is_interleaved;
  return call.element == Element::kBFloat16 && is_known && can_take_turns &&
         is_aligned(call.x, call.x_stride * 2) && is_aligned(nullptr, call.hidden_size * 2) &&
         call.num_experts <= kMaxGpuExperts &&
         fits_matrices(call.gate_up, 2 * size, call.hidden_size, call.format) &&
         fits_matrices(call.down, call.hidden_size, size, call.format);
}

namespace {

// By as many warpgroups as sums of so many tokens leave registers.
gpuError_t launch_moe_rows_float4_tiles(const FusedMoeGpuCall& call,
                                        const MoeRowsScratch& scratch,
                                        int num_tokens,
                                        gpuStream_t stream) {
  return num_tokens <= rows::kMostTokens<QuarterFloat4>
             ? launch_moe_rows_quarter_float4(call, scratch, num_tokens, stream)
             : launch_moe_rows_float4(call, scratch, num_tokens, stream);
}

gpuError_t launch_moe_rows_image_tiles(const FusedMoeGpuCall& call,
                                       const MoeRowsScratch& scratch,
                                       int num_tokens,
                                       gpuStream_t stream) {
  return num_tokens <= rows::kMostTokens<QuarterImageFloat4>
             ? launch_moe_rows_quarter_images(call, scratch, num_tokens, stream)
             : launch_moe_rows_images(call, scratch, num_tokens, stream);
}

bool is_early(const FusedMoeGpuCall& call) {
  return call.num_tokens <= rows::kMostTokens<EarlyBFloat16> &&
         call.num_tokens * call.top_k <= rows::kMaxEarlyChoices;
}

}  // namespace

bool fits_moe_rows_early(const FusedMoeGpuCall& call) {
  return call.format == ExpertFormat::kAsX && fits_moe_rows(call) && is_early(call);
}

gpuError_t launch_moe_rows_early(const FusedMoeGpuCall& call,
                                 const MoeRowsScratch& scratch,
                                 gpuStream_t stream) {
  gpuError_t error =
      arrange<EarlyBFloat16>(call, scratch, rows::kMostTokens<EarlyBFloat16>, stream);
  if (error == cudaSuccess) error = launch_moe_rows_early_bfloat16(call, scratch, stream);
  return error == cudaSuccess ? add_moe_results(call, scratch.results, stream) : error;
}

gpuError_t launch_moe_rows(const FusedMoeGpuCall& call,
                           const MoeRowsScratch& scratch,
                           gpuStream_t stream) {
  switch (call.format) {
    case ExpertFormat::kAsX:
      return launch_all<BFloat16>(call, scratch, launch_moe_rows_bfloat16, stream);
    case ExpertFormat::kFloat4Images:
      return launch_all<Float4>(call, scratch, launch_moe_rows_image_tiles, stream);
    default:
      return launch_all<Float4>(call, scratch, launch_moe_rows_float4_tiles, stream);
  }
}

}  // namespace atom::ops
