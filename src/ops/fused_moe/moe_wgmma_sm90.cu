// The launches of fused_moe for many tokens.
#include <algorithm>

#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_wgmma_sm90.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kElementSize = 2;
constexpr int kRowThreads = 128;
constexpr int kVectorElements = kVectorSize / kElementSize;

int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

__global__ void gather_rows(const __grid_constant__ FusedMoeGpuCall call, MoeWgmmaScratch scratch) {
  const int row = blockIdx.x;
  allow_next_grid();
  wait_for_previous_grid();
  if (row >= gpu_load_from_l2(scratch.shared.row_begins + call.num_experts)) return;
  const auto* source = static_cast<const BFloat16*>(call.x) +
                       gpu_load_from_l2(scratch.shared.choices + row) / call.top_k * call.x_stride;
  auto* target = static_cast<BFloat16*>(scratch.x) + int64_t{row} * call.hidden_size;
  for (int i = threadIdx.x * kVectorElements; i < call.hidden_size;
       i += kRowThreads * kVectorElements) {
    store_bits(target + i, load_bits_from_l2(source + i));
  }
}

// Results are weighted already.
template <typename Y>
__global__ void add_results(const __grid_constant__ FusedMoeGpuCall call, const void* results) {
  const int token = blockIdx.x;
  allow_next_grid();
  wait_for_previous_grid();
  for (int i = threadIdx.x * kVectorElements; i < call.hidden_size;
       i += kRowThreads * kVectorElements) {
    float total[kVectorElements] = {};
    for (int j = 0; j < call.top_k; ++j) {
      const int choice = token * call.top_k + j;
      if (place_of(call, choice) < 0) continue;
      float values[kVectorElements];
      to_floats<BFloat16>(load_bits_from_l2(static_cast<const BFloat16*>(results) +
                                            int64_t{choice} * call.hidden_size + i),
                          values);
#pragma unroll
      for (int v = 0; v < kVectorElements; ++v) total[v] += values[v];
    }
    Y* y = static_cast<Y*>(call.y) + token * call.y_stride + i;
#pragma unroll
    for (int v = 0; v < kVectorElements; ++v) y[v] = from_float<Y>(total[v]);
  }
}

bool is_aligned(const void* data, int64_t elements) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0 && elements % kVectorElements == 0;
}

// Of one tensor with all experts' matrices.
bool fits_matrices(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  return is_aligned(matrices.data, num_columns) && matrices.scales == nullptr &&
         matrices.expert_stride == int64_t{num_rows} * num_columns * kElementSize;
}

bool encode_map(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns, int box) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(num_columns), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(num_columns) * kElementSize},
      {static_cast<cuuint32_t>(moe::kPanelElements), static_cast<cuuint32_t>(box)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

template <bool kGated, bool kPlain>
gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeWgmmaScratch& scratch,
                           int num_blocks,
                           gpuStream_t stream) {
  auto* kernel = &moe::moe_wgmma<kGated, kPlain>;
  static const gpuError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, moe::kSharedSize);
  if (prepared != cudaSuccess) return prepared;
  const int num_columns = kGated ? call.hidden_size : call.intermediate_size;
  const int outputs_of_tile = kGated ? moe::kTileColumns / 2 : moe::kTileColumns;
  moe::MoeWgmmaArgs args{};
  args.call = call;
  args.scratch = scratch;
  args.own = kGated ? call.gate_up : call.down;
  args.num_rows = kGated ? 2 * call.intermediate_size : call.hidden_size;
  args.num_outputs = kGated ? call.intermediate_size : call.hidden_size;
  args.num_column_tiles = divide_up(args.num_outputs, outputs_of_tile);
  args.num_chunks = divide_up(num_columns * kElementSize, moe::kPanelSize);
  const void* x = kGated ? scratch.x : scratch.shared.activated;
  if (!encode_map(&args.x, x, int64_t{call.num_tokens} * call.top_k, num_columns, kMoeTileRows) ||
      !encode_map(&args.matrices,
                  args.own.data,
                  int64_t{call.num_experts} * args.num_rows,
                  num_columns,
                  moe::kTileColumns / 2)) {
    return cudaErrorNotSupported;
  }
  return launch(
      kernel, dim3(num_blocks), dim3(moe::kNumThreads), moe::kSharedSize, stream, true, args);
}

}  // namespace

bool fits_moe_wgmma(const FusedMoeGpuCall& call) {
  const int size = call.intermediate_size;
  const bool is_known = call.activation.kind == GatedActivationKind::kSilu ||
                        call.activation.kind == GatedActivationKind::kClampedSwiGlu;
  return is_known && call.element == Element::kBFloat16 && call.format == ExpertFormat::kAsX &&
         is_aligned(call.x, call.x_stride) && call.num_experts <= kMaxGpuExperts &&
         fits_matrices(call.gate_up, 2 * size, call.hidden_size) &&
         fits_matrices(call.down, call.hidden_size, size);
}

gpuError_t launch_moe_wgmma(const FusedMoeGpuCall& call,
                            const MoeWgmmaScratch& scratch,
                            gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error != cudaSuccess) return error;
  error = sort_moe_choices(call, scratch.shared, kMoeTileRows, stream);
  if (error == cudaSuccess) error = gather_moe_rows(call, scratch, stream);
  const bool is_plain = call.activation.kind == GatedActivationKind::kSilu &&
                        !call.activation.is_interleaved && call.gate_up.bias == nullptr &&
                        call.down.bias == nullptr;
  const auto launch_matrix = [&](auto plain, auto general) {
    if (error == cudaSuccess) {
      error = (is_plain ? plain : general)(call, scratch, num_blocks, stream);
    }
  };
  launch_matrix(launch_matrices<true, true>, launch_matrices<true, false>);
  launch_matrix(launch_matrices<false, true>, launch_matrices<false, false>);
  return error == cudaSuccess ? add_moe_results(call, scratch.results, stream) : error;
}

gpuError_t gather_moe_rows(const FusedMoeGpuCall& call,
                           const MoeWgmmaScratch& scratch,
                           gpuStream_t stream) {
  return launch(gather_rows,
                dim3(call.num_tokens * call.top_k),
                dim3(kRowThreads),
                0,
                stream,
                true,
                call,
                scratch);
}

gpuError_t add_moe_results(const FusedMoeGpuCall& call, const void* results, gpuStream_t stream) {
  gpuError_t error = cudaSuccess;
  dispatch_element(call.y_element, [&]<typename Y>(ElementTag<Y>) {
    error = launch(
        add_results<Y>, dim3(call.num_tokens), dim3(kRowThreads), 0, stream, true, call, results);
  });
  return error;
}

}  // namespace atom::ops
