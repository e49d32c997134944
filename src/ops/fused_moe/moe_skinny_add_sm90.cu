// The sums of tokens' results of fused_moe for few tokens by experts in FP8.
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_choices.cuh"
#include "ops/fused_moe/moe_skinny_launch_sm90.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kThreads = 128;
constexpr int kColumns = 4;            // of a thread
constexpr int kAtOnce = 8, kStep = 4;  // choices
// So many registers as blocks of the kernel before leave: blocks are there when it ends.
constexpr int kBlocksAtOnce = 9;

// Loads are under few conditions: a thread has few registers for them, and loads that had one each
// would be waited for one by one.
__device__ void add_some(const FusedMoeGpuCall& call,
                         const float* results,
                         int first,
                         uint32_t existing,
                         float (&total)[kColumns]) {
  uint4 some[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int choice = min(first + i, call.top_k - 1);
    const float* const source = results + int64_t{choice} * call.hidden_size;
    some[i] = first + i / kStep * kStep < call.top_k ? load_bits_from_l2(source) : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const bool exists = (existing >> (first + i) % kWarpSize & 1) != 0;
    float values[kColumns];
    to_floats<float>(some[i], values);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) total[c] += exists ? values[c] : 0.0f;
  }
}

template <typename Y>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    add_results(const __grid_constant__ FusedMoeGpuCall call, MoeSkinnyScratch scratch) {
  const int token = blockIdx.y;
  const int column = (blockIdx.x * kThreads + threadIdx.x) * kColumns;
  allow_next_grid();
  // The choices are of a kernel before the one before, whose blocks have all waited for it.
  uint32_t existing = existing_choices(call, token, 0);
  wait_for_previous_grid();
  const int num_blocks = gridDim.x * gridDim.y;
  for (int i = (token * gridDim.x + blockIdx.x) * kThreads + threadIdx.x; i < kNumMoeSkinnyCounters;
       i += num_blocks * kThreads) {
    scratch.counters[i] = 0;
  }
  const float* const results = scratch.results + int64_t{token} * call.top_k * call.hidden_size;
  float total[kColumns] = {};
#pragma unroll 1
  for (int first = 0; first < call.top_k; first += kAtOnce) {
    if (first > 0 && first % kWarpSize == 0) existing = existing_choices(call, token, first);
    if (column < call.hidden_size) add_some(call, results + column, first, existing, total);
  }
  if (column >= call.hidden_size) return;
  store_rounded(total, static_cast<Y*>(call.y) + token * call.y_stride + column);
}

}  // namespace

gpuError_t add_moe_skinny_results(const FusedMoeGpuCall& call,
                                  const MoeSkinnyScratch& scratch,
                                  gpuStream_t stream) {
  constexpr int kBlockColumns = kThreads * kColumns;
  const dim3 grid((call.hidden_size + kBlockColumns - 1) / kBlockColumns, call.num_tokens);
  gpuError_t error = cudaSuccess;
  dispatch_element(call.y_element, [&]<typename Y>(ElementTag<Y>) {
    error = launch(add_results<Y>, grid, dim3(kThreads), 0, stream, true, call, scratch);
  });
  return error;
}

}  // namespace atom::ops
