// The sums of tokens' results: as many threads as there are vectors, and as many loads at once as a
// token has results.
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_many.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kThreads = 64;
constexpr int kVectorElements = kVectorSize / 2;
constexpr int kAtOnce = 8;

// With `rows` of choices results are weighted here, else they are already.
template <typename Y>
__global__ void __launch_bounds__(kThreads)
    add_results(const __grid_constant__ FusedMoeGpuCall call,
                const void* results,
                const int32_t* rows) {
  const int token = blockIdx.x;
  const int column = (blockIdx.y * kThreads + threadIdx.x) * kVectorElements;
  allow_next_grid();
  wait_for_previous_grid();
  if (column >= call.hidden_size) return;
  float total[kVectorElements] = {};
  for (int first = 0; first < call.top_k; first += kAtOnce) {
    bool exists[kAtOnce];
    uint4 vectors[kAtOnce];
    float weights[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      exists[j] = first + j < call.top_k && place_of(call, token * call.top_k + first + j) >= 0;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int choice = token * call.top_k + first + j;
      const bool is_ordered = exists[j] && rows != nullptr;
      const int64_t row = is_ordered ? gpu_load_from_l2(rows + choice) : choice;
      weights[j] = is_ordered ? gpu_load_from_l2(call.weights + choice) : 1.0f;
      vectors[j] = exists[j] ? load_bits_from_l2(static_cast<const BFloat16*>(results) +
                                                 row * call.hidden_size + column)
                             : uint4{};
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      float values[kVectorElements];
      to_floats<BFloat16>(vectors[j], values);
#pragma unroll
      for (int v = 0; v < kVectorElements; ++v) {
        total[v] = exists[j] ? fmaf(weights[j], values[v], total[v]) : total[v];
      }
    }
  }
  Y* y = static_cast<Y*>(call.y) + token * call.y_stride + column;
#pragma unroll
  for (int v = 0; v < kVectorElements; ++v) y[v] = from_float<Y>(total[v]);
}

}  // namespace

gpuError_t add_moe_results(const FusedMoeGpuCall& call, const void* results, gpuStream_t stream) {
  return add_moe_rows(call, results, nullptr, stream);
}

gpuError_t add_moe_rows(const FusedMoeGpuCall& call,
                        const void* results,
                        const int32_t* rows,
                        gpuStream_t stream) {
  constexpr int kColumns = kThreads * kVectorElements;
  const dim3 grid(call.num_tokens, (call.hidden_size + kColumns - 1) / kColumns);
  gpuError_t error = cudaSuccess;
  dispatch_element(call.y_element, [&]<typename Y>(ElementTag<Y>) {
    error = launch(add_results<Y>, grid, dim3(kThreads), 0, stream, true, call, results, rows);
  });
  return error;
}

}  // namespace atom::ops
