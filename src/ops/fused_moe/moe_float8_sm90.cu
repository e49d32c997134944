// Which calls of many tokens by experts in FP8 there are kernels for, and their x in codes.
#include "base/rounding.h"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_float8.h"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kBlockRows = 128;                               // of a matrix, that share a scale
constexpr int kQuantizeWarps = 4;                             // tokens of a block
constexpr int kGroupLanes = kMoeCodeGroup * 2 / kVectorSize;  // lanes with a vector of a group

// A token by a warp, to the rows of all of its choices or to one of its own.
template <bool kToChoices>
__global__ void __launch_bounds__(kQuantizeWarps* kWarpSize)
    quantize_tokens(const __grid_constant__ FusedMoeGpuCall call, MoeFloat8Scratch scratch) {
  constexpr int kLength = kVectorSize / 2, kColumns = kWarpSize * kLength;
  constexpr uint32_t kAllLanes = 0xffffffffu;
  allow_next_grid();
  wait_for_previous_grid();
  const int token = blockIdx.x * kQuantizeWarps + threadIdx.x / kWarpSize;
  if (token >= call.num_tokens) return;
  const int lane = threadIdx.x % kWarpSize, size = call.hidden_size;
  const auto* x = static_cast<const BFloat16*>(call.x) + token * call.x_stride;
  const int num_copies = kToChoices ? call.top_k : 1;
  const int64_t num_rows = int64_t{call.num_tokens} * num_copies;
  int row_of_lane = token;
  if constexpr (kToChoices) {
    const int choice = token * call.top_k + lane;
    const bool is_here = lane < call.top_k && place_of(call, choice) >= 0;
    row_of_lane = is_here ? gpu_load_from_l2(scratch.shared.rows + choice) : -1;
  }
  for (int first = 0; first < size; first += kColumns) {
    const int column = first + lane * kLength;
    const uint4 vectors[1] = {column < size ? load_bits_from_l2(x + column) : uint4{}};
    LargestMagnitude<BFloat16> largest;
    largest.see(vectors[0]);
    const float scale = scale_of_largest(reduce_lanes(largest.value(), kGroupLanes, Largest()));
    Pack<Float8, kLength> codes{};
    quantize_vectors<BFloat16, true>(
        vectors, scale, [&](int, const Pack<Float8, kLength>& some) { codes = some; });
    for (int j = 0; j < num_copies; ++j) {
      const int row = __shfl_sync(kAllLanes, row_of_lane, j);
      if (row < 0 || column >= size) continue;
      *reinterpret_cast<Pack<Float8, kLength>*>(scratch.x + int64_t{row} * size + column) = codes;
      if (lane % kGroupLanes > 0) continue;
      scratch.x_scales[column / kMoeCodeGroup * num_rows + row] = scale;
    }
  }
}

gpuError_t launch_quantize(void (*kernel)(FusedMoeGpuCall, MoeFloat8Scratch),
                           const FusedMoeGpuCall& call,
                           const MoeFloat8Scratch& scratch,
                           gpuStream_t stream) {
  return launch(kernel,
                dim3(ceil_div(call.num_tokens, kQuantizeWarps)),
                dim3(kQuantizeWarps * kWarpSize),
                0,
                stream,
                true,
                call,
                scratch);
}

bool is_aligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0 && bytes % kVectorSize == 0;
}

// Of one tensor with all experts' matrices.
bool fits_matrices(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  return is_aligned(matrices.data, num_columns) &&
         matrices.expert_stride == int64_t{num_rows} * num_columns && matrices.bias == nullptr &&
         moe_scales_of(matrices, num_rows, num_columns);
}

}  // namespace

std::optional<MoeRowScales> moe_scales_of(const ExpertMatrices& matrices,
                                          int num_rows,
                                          int num_columns) {
  if (matrices.scale_rows == kBlockRows && matrices.scale_columns == kMoeCodeGroup) {
    return MoeRowScales::kBlocks;
  }
  if (matrices.scale_columns != num_columns) return {};
  if (matrices.scale_rows == 1 && num_rows > 1) return MoeRowScales::kEach;
  return matrices.scale_rows == num_rows ? std::optional(MoeRowScales::kAll) : std::nullopt;
}

bool fits_moe_float8(const FusedMoeGpuCall& call) {
  const int size = call.intermediate_size;
  // Halves of a tile's columns have one scale each.
  const bool is_whole =
      moe_scales_of(call.gate_up, 2 * size, call.hidden_size) != MoeRowScales::kBlocks ||
      size % kBlockRows == 0;
  const GatedActivation& activation = call.activation;
  const bool is_known =
      !activation.is_interleaved && (activation.kind == GatedActivationKind::kSilu ||
                                     activation.kind == GatedActivationKind::kClampedSwiGlu);
  return call.element == Element::kBFloat16 && call.format == ExpertFormat::kFloat8 && is_whole &&
         is_known && call.top_k <= kWarpSize && is_aligned(call.x, call.x_stride * 2) &&
         call.num_experts <= kMaxGpuExperts &&
         fits_matrices(call.gate_up, 2 * size, call.hidden_size) &&
         fits_matrices(call.down, call.hidden_size, size);
}

gpuError_t quantize_moe_rows(const FusedMoeGpuCall& call,
                             const MoeFloat8Scratch& scratch,
                             gpuStream_t stream) {
  return launch_quantize(quantize_tokens<true>, call, scratch, stream);
}

gpuError_t quantize_moe_tokens(const FusedMoeGpuCall& call,
                               const MoeFloat8Scratch& scratch,
                               gpuStream_t stream) {
  return launch_quantize(quantize_tokens<false>, call, scratch, stream);
}

}  // namespace atom::ops
