// Inside fused_moe by MXFP4 and FP8: rows of x, and of what is activated, as codes.
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_mixed_launch_sm90.h"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kQuantizeWarps = 4;
constexpr int kGroupLanes = kMoeMixedGroup * 2 / kVectorSize;  // lanes with a vector of a group

// In the order in which products take them: of 32 columns the first four of each eight, and then
// the last ones.
__device__ void store_codes(uint8_t* row, int column, const Pack<Float8, 8>& codes) {
  uint32_t words[2];
  memcpy(words, &codes, sizeof words);
  uint8_t* const block = row + column / 32 * 32 + column % 32 / 2;
  *reinterpret_cast<uint32_t*>(block) = words[0];
  *reinterpret_cast<uint32_t*>(block + 16) = words[1];
}

// A row by a warp: a token's, to the rows of all of its choices, or one of what is activated.
template <bool kOfTokens>
__global__ void __launch_bounds__(kQuantizeWarps* kWarpSize)
    quantize_rows(const __grid_constant__ FusedMoeGpuCall call, MoeMixedScratch scratch) {
  constexpr int kLength = kVectorSize / 2, kColumns = kWarpSize * kLength;
  constexpr int kAtOnce = 4;  // vectors of a lane that are asked for together
  constexpr uint32_t kAllLanes = 0xffffffffu;
  allow_next_grid();
  wait_for_previous_grid();
  const int source = blockIdx.x * kQuantizeWarps + threadIdx.x / kWarpSize;
  const int num_sources =
      kOfTokens ? call.num_tokens : gpu_load_from_l2(scratch.shared.row_begins + call.num_experts);
  if (source >= num_sources) return;
  const int lane = threadIdx.x % kWarpSize;
  const int size = kOfTokens ? call.hidden_size : call.intermediate_size;
  const auto* x = kOfTokens ? static_cast<const BFloat16*>(call.x) + source * call.x_stride
                            : static_cast<const BFloat16*>(scratch.values) + int64_t{source} * size;
  const int num_copies = kOfTokens ? call.top_k : 1;
  const int64_t stride = moe_mixed_scale_stride(int64_t{call.num_tokens} * call.top_k);
  int row_of_lane = source;
  if constexpr (kOfTokens) {
    const int choice = source * call.top_k + lane;
    const bool is_here = lane < call.top_k && place_of(call, choice) >= 0;
    row_of_lane = is_here ? gpu_load_from_l2(scratch.shared.rows + choice) : -1;
  }
  for (int first = 0; first < size; first += kAtOnce * kColumns) {
    uint4 vectors[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int column = first + i * kColumns + lane * kLength;
      vectors[i] = column < size ? load_bits_from_l2(x + column) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int column = first + i * kColumns + lane * kLength;
      const uint4 some[1] = {vectors[i]};
      LargestMagnitude<BFloat16> largest;
      largest.see(vectors[i]);
      const float scale = scale_of_largest(reduce_lanes(largest.value(), kGroupLanes, Largest()));
      Pack<Float8, kLength> codes{};
      quantize_vectors<BFloat16, true>(
          some, scale, [&](int, const Pack<Float8, kLength>& made) { codes = made; });
      for (int j = 0; j < num_copies; ++j) {
        const int row = __shfl_sync(kAllLanes, row_of_lane, j);
        if (row < 0 || column >= size) continue;
        store_codes(scratch.codes + int64_t{row} * size, column, codes);
        if (lane % kGroupLanes > 0) continue;
        scratch.scales[column / kMoeMixedGroup * stride + row] = scale;
      }
    }
  }
}

gpuError_t launch_quantize(void (*kernel)(FusedMoeGpuCall, MoeMixedScratch),
                           int num_sources,
                           const FusedMoeGpuCall& call,
                           const MoeMixedScratch& scratch,
                           gpuStream_t stream) {
  return launch(kernel,
                dim3((num_sources + kQuantizeWarps - 1) / kQuantizeWarps),
                dim3(kQuantizeWarps * kWarpSize),
                0,
                stream,
                true,
                call,
                scratch);
}

}  // namespace

gpuError_t quantize_mixed_tokens(const FusedMoeGpuCall& call,
                                 const MoeMixedScratch& scratch,
                                 gpuStream_t stream) {
  return launch_quantize(quantize_rows<true>, call.num_tokens, call, scratch, stream);
}

gpuError_t quantize_mixed_activated(const FusedMoeGpuCall& call,
                                    const MoeMixedScratch& scratch,
                                    gpuStream_t stream) {
  return launch_quantize(quantize_rows<false>, call.num_tokens * call.top_k, call, scratch, stream);
}

}  // namespace atom::ops
