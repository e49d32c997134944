// What comes before the matrices and behind them, for many tokens: rows of x in the order of
// experts, and the sums of tokens' results.
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_many.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kElementSize = 2;
constexpr int kRowThreads = 128;
constexpr int kVectorElements = kVectorSize / kElementSize;

__global__ void gather_rows(const __grid_constant__ FusedMoeGpuCall call, MoeManyScratch scratch) {
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

}  // namespace

gpuError_t gather_moe_rows(const FusedMoeGpuCall& call,
                           const MoeManyScratch& scratch,
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
