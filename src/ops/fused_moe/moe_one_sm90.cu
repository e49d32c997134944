// The kernel of fused_moe for one or few tokens by experts in FP8, and its launch.
#include <algorithm>

#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_one_consumer.cuh"
#include "ops/fused_moe/moe_one_copy.cuh"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::moe_one;

__device__ void make_barriers(Shared& shared) {
  for (int stage = 0; stage < kNumStages; ++stage) {
    // Bytes of matrices, and each lane's scales.
    init_barrier(shared_address(&shared.full[stage]), 1 + kWarpSize);
    init_barrier(shared_address(&shared.empty[stage]), kWarps);
  }
  init_barrier(shared_address(&shared.read), kWarps);
  publish_barriers();
}

__global__ void __launch_bounds__(kNumThreads, 1)
    moe_one_kernel(const __grid_constant__ MoeOneArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  allow_next_grid();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (warp < kWarps) {
    Consumer(args, shared).run();
  } else if (warp == kWarps) {
    if (is_elected()) {
      prefetch_map(&args.gate_up.map);
      prefetch_map(&args.down.map);
      make_barriers(shared);
    }
    __syncwarp();
    MatrixCopier(args, shared).run();
  } else {
    ScaleCopier(args, shared).run();
    forget_activated(args, shared);
  }
}

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0;
}

// Of one tensor with all experts' matrices.
bool fits_matrices(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  const bool of_blocks = matrices.scale_rows == kPanel && matrices.scale_columns == kPanel;
  const bool of_rows = matrices.scale_columns == num_columns && matrices.scales_across == 1 &&
                       (matrices.scale_rows == 1 || matrices.scale_rows == num_rows);
  return is_aligned(matrices.data) && num_columns % kPanel == 0 && num_rows % kPanel == 0 &&
         matrices.expert_stride == int64_t{num_rows} * num_columns && matrices.bias == nullptr &&
         matrices.exponents == nullptr && (of_blocks || of_rows);
}

bool prepare_matrix(MatrixArgs* args,
                    const ExpertMatrices& matrices,
                    int num_experts,
                    int num_rows,
                    int num_columns) {
  const int num_panels = num_columns / kPanel, box_panels = std::min(num_panels, kHalfPanels);
  args->scales = matrices.scales;
  args->scale_stride = matrices.scale_stride;
  args->num_rows = num_rows;
  args->num_panels = num_panels;
  args->box_size = box_panels * kPanelSize;
  args->scale_shift = matrices.scale_rows == 1 ? 0 : matrices.scale_rows == kPanel ? 7 : 31;
  args->scales_across = matrices.scales_across;
  args->has_row_scales = matrices.scale_rows == 1;
  const TensorMapShape<3> shape = {{kPanel,
                                    static_cast<cuuint64_t>(num_experts) * num_rows,
                                    static_cast<cuuint64_t>(num_panels)},
                                   {static_cast<cuuint64_t>(num_columns), kPanel},
                                   {kPanel, kTileRows, static_cast<cuuint32_t>(box_panels)}};
  return encode_tensor_map(&args->map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           matrices.data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

int choices_at_once(const FusedMoeGpuCall& call) {
  return kStagePanels / (call.intermediate_size / kPanel);
}

}  // namespace

bool fits_moe_one(const FusedMoeGpuCall& call) {
  const bool element =
      call.element == Element::kBFloat16 &&
      (call.y_element == Element::kBFloat16 || call.y_element == Element::kFloat32);
  const int hidden_size = call.hidden_size, size = call.intermediate_size;
  if (!element || call.format != ExpertFormat::kFloat8 || call.activation.is_interleaved ||
      !fits_tokens(call) || call.top_k > kMaxChoices || hidden_size > kMaxCodeRows * kPanel ||
      size > kHalfPanels * kPanel || !fits_matrices(call.gate_up, 2 * size, hidden_size) ||
      !fits_matrices(call.down, hidden_size, size)) {
    return false;
  }
  const int at_once = choices_at_once(call), num_stages = (call.top_k + at_once - 1) / at_once;
  return num_stages * kStagePanels <= kMaxCodeRows;
}

gpuError_t launch_moe_one(const FusedMoeGpuCall& call,
                          const MoeOneScratch& scratch,
                          gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(
        moe_one_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  }
  if (error != cudaSuccess) return error;
  MoeOneArgs args{};
  args.choices_at_once = choices_at_once(call);
  args.call = call;
  args.scratch = scratch;
  const int size = call.intermediate_size;
  if (!prepare_matrix(&args.gate_up, call.gate_up, call.num_experts, 2 * size, call.hidden_size) ||
      !prepare_matrix(&args.down, call.down, call.num_experts, call.hidden_size, size)) {
    return cudaErrorNotSupported;
  }
  const dim3 blocks = blocks_of_tokens(call, num_blocks);
  return launch(moe_one_kernel, blocks, dim3(kNumThreads), sizeof(Shared), stream, true, args);
}

}  // namespace atom::ops
