// The sums of tokens' results of fused_moe for few tokens by experts in FP8.
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_skinny_launch_sm90.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kThreads = 128;
constexpr int kColumns = 4;  // of a thread
constexpr int kAtOnce = 12;  // choices

// Which of a token's choices from `first` on have results.
struct Existing {
  bool choices[kAtOnce];

  __device__ Existing(const FusedMoeGpuCall& call, int token, int first) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int j = first + i;
      choices[i] = j < call.top_k && place_of(call, token * call.top_k + j) >= 0;
    }
  }
};

__device__ void add_some(const FusedMoeGpuCall& call,
                         const float* results,
                         const Existing& existing,
                         float4& total) {
  float4 some[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const float* const source = results + int64_t{i} * call.hidden_size;
    some[i] =
        existing.choices[i] ? gpu_load_from_l2(reinterpret_cast<const float4*>(source)) : float4{};
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    if (!existing.choices[i]) continue;
    total.x += some[i].x;
    total.y += some[i].y;
    total.z += some[i].z;
    total.w += some[i].w;
  }
}

template <typename Y>
__global__ void __launch_bounds__(kThreads)
    add_results(const __grid_constant__ FusedMoeGpuCall call, MoeSkinnyScratch scratch) {
  const int token = blockIdx.y;
  const int column = (blockIdx.x * kThreads + threadIdx.x) * kColumns;
  allow_next_grid();
  // The choices are of a kernel before the one before, whose blocks have all waited for it.
  Existing existing(call, token, 0);
  wait_for_previous_grid();
  const int num_blocks = gridDim.x * gridDim.y;
  for (int i = (token * gridDim.x + blockIdx.x) * kThreads + threadIdx.x; i < kNumMoeSkinnyCounters;
       i += num_blocks * kThreads) {
    scratch.counters[i] = 0;
  }
  if (column >= call.hidden_size) return;
  const float* const results = scratch.results + int64_t{token} * call.top_k * call.hidden_size;
  float4 total{};
  add_some(call, results + column, existing, total);
  for (int first = kAtOnce; first < call.top_k; first += kAtOnce) {
    add_some(call,
             results + int64_t{first} * call.hidden_size + column,
             Existing(call, token, first),
             total);
  }
  Y* const y = static_cast<Y*>(call.y) + token * call.y_stride + column;
  y[0] = from_float<Y>(total.x);
  y[1] = from_float<Y>(total.y);
  y[2] = from_float<Y>(total.z);
  y[3] = from_float<Y>(total.w);
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
